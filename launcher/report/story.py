"""One run as its directory tells it: what ran, how it went and how it ended, in one value."""

from __future__ import annotations

import calendar
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.runs.checkpoints import checkpoints_in, checkpoints_of
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, job_of
from ipulaunch.configs.runs.last_records import Failed, read_exited, read_failed
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.launcher.report.measures import Measures, read_measures
from ipulaunch.launcher.report.records import InstanceRecords, read_records
from ipulaunch.launcher.schedulers.scheduler import ENDING, RUNNING, WAITING, JobState
from ipulaunch.launcher.supervise.endings import Ending, attempt_of, read_endings
from ipulaunch.launcher.supervise.verdict import last_lines
from ipulaunch.topology import Plan

_MOST_BYTES = 1 << 28  # of the records of instance 0 in the present attempt
_MOST_OF_OTHERS = 1 << 26  # of all others together
_LEAST_BYTES = 1 << 17  # of the records of one instance
_MOST_OF_ONE = 1 << 23
MOST_ATTEMPTS = 50  # the last ones


class Attempt(NamedTuple):
    """One attempt of a run."""

    number: int
    leader: InstanceRecords  # of instance 0
    endings: Tuple[Ending, ...]  # usually one; another where a signal ended the pause after it

    @property
    def ended_s(self) -> Optional[float]:
        """When it ended, as far as the launcher has noted that."""
        return _seconds_of(self.endings[0].time) if self.endings else None


class Failure(NamedTuple):
    """The instance that failed first, with the end of its log."""

    instance: int
    record: Failed
    log_lines: Tuple[str, ...]


@dataclass(frozen=True)
class RunStory:
    """All that is told about one run."""

    run: RunDirectory
    name: str
    state: JobState
    plan: Optional[Plan]
    job: Optional[Job]
    origins: Mapping[str, str]  # of settings, where a run has recorded them
    command: str
    attempts: Tuple[Attempt, ...]  # the last one is the present one
    left_out_attempts: int
    instances: Tuple[InstanceRecords, ...]  # of the present attempt
    measures: Measures
    summary: Mapping[str, Any]
    checkpoints: Tuple[str, ...]
    failure: Optional[Failure]
    exits: Mapping[int, str]  # of programs of users
    log_lines: Tuple[str, ...]  # the end of the log of instance 0
    engine_lines: Tuple[str, ...]
    traces_samples: bool
    read_at_s: float

    @property
    def goes_on(self) -> bool:
        return self.state.word in (RUNNING, WAITING, ENDING)

    @property
    def first_s(self) -> Optional[float]:
        """When the first record of the run was written."""
        return min((attempt.leader.first_s for attempt in self.attempts if attempt.leader.first_s), default=None)

    @property
    def last_s(self) -> float:
        """When the run ended, or now."""
        last = self.attempts[-1]
        return self.read_at_s if self.goes_on else max(last.ended_s or 0.0, last.leader.last_s)

    @property
    def seconds(self) -> Dict[str, float]:
        """The seconds of the updates of all instances by what was done in them, where they are recorded."""
        total: Dict[str, float] = {}
        for records in self.instances:
            for name, seconds in records.seconds.items():
                total[name] = total.get(name, 0.0) + seconds
        return total


def read_story(run: RunDirectory, plan: Optional[Plan], state: JobState, name: str) -> RunStory:
    """Read a run of any version, in any state. What is missing or damaged is left out of the story."""
    job = job_of(run)
    numbers = run.earlier_attempts()
    endings = read_endings(run)
    places = [(number, run.attempt(number)) for number in numbers[-MOST_ATTEMPTS:]] + [(attempt_of(run), run)]
    count = plan.instances if plan else len(run.instances())
    share = min(_MOST_OF_ONE, max(_LEAST_BYTES, _MOST_OF_OTHERS // max(1, count)))
    attempts = tuple(
        Attempt(
            number,
            read_records(place, 0, _MOST_BYTES if place is run else share),
            tuple(ending for ending in endings if ending.attempt == number),
        )
        for number, place in places
    )
    others = [read_records(run, instance, share) for instance in range(1, count)]
    failure = _first_failure(run, count)
    exits = {instance: text for instance in range(count) for text in _exit_of(run, instance)}
    return RunStory(
        run=run,
        name=name,
        state=state,
        plan=plan,
        job=job,
        origins=_origins(run),
        command=_text(run.command),
        attempts=attempts,
        left_out_attempts=max(0, len(numbers) - MOST_ATTEMPTS),
        instances=(attempts[-1].leader, *others),
        measures=read_measures(run, plan.batch.global_size if plan else None),
        summary=_table(run.summary),
        checkpoints=_checkpoints(run, job),
        failure=failure,
        exits=exits,
        log_lines=tuple(last_lines(run.log(0))),
        engine_lines=tuple(last_lines(run.engine_log)),
        traces_samples=run.samples(0).exists(),
        read_at_s=time.time(),
    )


def _first_failure(run: RunDirectory, count: int) -> Optional[Failure]:
    records = [(record, index) for index in range(count) for record in [read_failed(run, index)] if record]
    if not records:
        return None
    record, index = min(records, key=lambda found: (found[0].time_ns, found[1]))
    return Failure(index, record, tuple(last_lines(run.log(index))))


def _exit_of(run: RunDirectory, instance: int) -> List[str]:
    record = read_exited(run, instance)
    if record is None:
        return []
    return [f"ended by signal {record.signal}" if record.signal else f"exit code {record.exit_code}"]


def _checkpoints(run: RunDirectory, job: Optional[Job]) -> Tuple[str, ...]:
    try:
        directory = checkpoints_of(run, job)
        found = [path.name for path in checkpoints_in(directory)]
        return tuple(found or sorted(path.stem for path in directory.glob("*.index")))
    except OSError:  # of another user
        return ()


def _origins(run: RunDirectory) -> Dict[str, str]:
    return {key: value for key, value in _table(run.origins).items() if isinstance(value, str)}


def _table(path: Path) -> Dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        table = parse_json(read_text(path))
        if isinstance(table, dict):
            return table
    return {}


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""


def _seconds_of(utc: str) -> Optional[float]:
    """The time in a record, which utc() has written."""
    try:
        return float(calendar.timegm(time.strptime(utc, "%Y-%m-%dT%H:%M:%SZ")))
    except (ValueError, OverflowError):
        return None
