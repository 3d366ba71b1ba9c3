"""The attempts of a run: how each has ended, line by line, whether another one follows, and making it ready."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from typing import Any, Dict, List, NamedTuple, Optional

from ipulaunch.configs.errors import INTERRUPTED, DataError, JobError, StoppedError
from ipulaunch.configs.runs.checkpoints import checkpoints_of, newest_update
from ipulaunch.configs.runs.directory import RunDirectory, writable, write_whole
from ipulaunch.configs.runs.job import Job, job_of, to_yaml
from ipulaunch.configs.runs.untrusted import parse_json
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.configs.text import utc
from ipulaunch.launcher.launch import program_record
from ipulaunch.launcher.supervise.progress import progress_of
from ipulaunch.launcher.supervise.verdict import Verdict
from ipulaunch.topology import Plan

LONGEST_WAIT_S = 600.0  # before a restart, unless the first one is to wait longer


class Ending(NamedTuple):
    """The end of one attempt."""

    attempt: int
    exit_code: int
    headline: str
    time: str  # UTC


def record_ending(run: RunDirectory, verdict: Verdict) -> None:
    """Note how the present attempt ended."""
    ending = Ending(attempt_of(run), verdict.exit_code, verdict.headline, utc())
    with contextlib.suppress(OSError), run.endings.open("a", encoding="utf-8") as file:  # the disk may be the reason
        file.write(json.dumps(ending._asdict()) + "\n")


def read_endings(run: RunDirectory) -> List[Ending]:
    """The endings so far, without lines that are not whole."""
    try:
        lines = run.endings.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [ending for ending in map(_read, lines) if ending is not None]


def attempt_of(run: RunDirectory) -> int:
    """The number of the present attempt. The records of earlier ones are kept under their numbers."""
    return 1 + max(run.earlier_attempts(), default=0)


def restarts(run: RunDirectory) -> int:
    """How often the run has failed and was started again, over its whole life."""
    present = attempt_of(run)
    failed = {ending.attempt for ending in read_endings(run) if ending.exit_code == JobError.exit_code}
    return sum(attempt < present for attempt in failed)


def preemptions(run: RunDirectory) -> int:
    """How often somebody has stopped the run, over its whole life."""
    return sum(ending.exit_code == StoppedError.exit_code for ending in read_endings(run))


def within_preemptions(run: RunDirectory, verdict: Verdict, survival: Survival) -> Verdict:
    """The verdict on a run that was stopped: its exit code asks for another start only --max-preemptions times.

    A run that was cancelled does not ask for one. Call this before record_ending().
    """
    if verdict.exit_code != StoppedError.exit_code:
        return verdict
    if run.cancel.exists():
        return dataclasses.replace(verdict, exit_code=INTERRUPTED)
    count, most = 1 + preemptions(run), survival.max_preemptions
    code = JobError.exit_code if count > most else verdict.exit_code
    return dataclasses.replace(verdict, exit_code=code, preemptions=count, max_preemptions=most)


def survival_of(run: RunDirectory) -> Optional[Survival]:
    """How long and how often a run is tried; None where it does not say so."""
    job = job_of(run)
    if job is not None:
        return job.settings.survival
    with contextlib.suppress(OSError, DataError):
        return program_record.read(run).program.survival
    return None


class Restart(NamedTuple):
    """The next attempt of a run that failed."""

    number: int
    most: int
    wait_s: float


def next_restart(
    verdict: Verdict, survival: Survival, restarts: int, has_trained: bool, in_vain: int = 0
) -> Optional[Restart]:
    """The restart after this verdict, or None. It waits longer after restarts that got no further.

    A job that never made an update would fail in the same way again. Wrong settings, data and plans stay wrong. And
    nobody restarts a run that somebody has stopped.
    """
    if verdict.was_asked_to_stop or restarts >= survival.max_restarts:
        return None
    if verdict.exit_code == StoppedError.exit_code and verdict.asks_to_continue:
        return Restart(restarts + 1, survival.max_restarts, 0.0)
    is_over = verdict.preemptions > verdict.max_preemptions
    if verdict.exit_code != JobError.exit_code or not has_trained or is_over:
        return None
    first_s = survival.restart_backoff_s
    wait_s = min(first_s * 2.0 ** min(in_vain, 64), max(first_s, LONGEST_WAIT_S))
    return Restart(restarts + 1, survival.max_restarts, wait_s)


def after_restarts(verdict: Verdict, survival: Survival, restarts: int) -> Verdict:
    """The last verdict, with the number of restarts before it."""
    if verdict.exit_code != JobError.exit_code or not restarts:
        return verdict
    return dataclasses.replace(verdict, restarts=restarts, max_restarts=survival.max_restarts)


def _read(line: str) -> Optional[Ending]:
    try:
        record: Dict[str, Any] = parse_json(line)
        return Ending(int(record["attempt"]), int(record["exit_code"]), str(record["headline"]), str(record["time"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def lost_checkpoint(run: RunDirectory, job: Job) -> str:
    """A warning if the run has written checkpoints and all of them are gone; else an empty text."""
    if newest_update(run, job) is not None:
        return ""
    written = max(progress_of(each).kept for each in [run, *map(run.attempt, run.earlier_attempts())])
    if not written:
        return ""
    gone = f"update {written} was kept, and there is no checkpoint in {checkpoints_of(run, job)} now"
    return f"{gone}: the training starts from the beginning"


def begin_again(run: RunDirectory, plan: Plan, job: Job) -> Job:
    """Prepare the run for another attempt, which continues from the newest checkpoint; returns its job."""
    with writable(run):
        return _begin_again(run, plan, job)


def set_aside(run: RunDirectory, plan: Plan) -> None:
    """Prepare the run for another attempt: keep the records of the last one under its number."""
    with writable(run):
        _set_aside(run, plan)


def _set_aside(run: RunDirectory, plan: Plan) -> None:
    kept = run.attempt(attempt_of(run)).path
    kept.mkdir(parents=True)
    for path in [*map(run.instance, run.instances()), run.engine_log]:
        if path.exists():
            shutil.move(str(path), str(kept / path.name))
    for request in (run.stop, run.cancel):
        with contextlib.suppress(FileNotFoundError):
            request.unlink()
    make_instances(run, plan)


def _begin_again(run: RunDirectory, plan: Plan, job: Job) -> Job:
    _set_aside(run, plan)
    training = job.settings.training
    # An Estimator continues in its directory by itself.
    if job.settings.api == KERAS and newest_update(run, job) is not None:
        training = dataclasses.replace(training, resume=training.checkpoint_output_dir or str(run.path))
    again = job._replace(settings=dataclasses.replace(job.settings, training=training))
    write_whole(run.job, to_yaml(again))
    return again


def make_instances(run: RunDirectory, plan: Plan) -> None:
    """Make a directory for the records of every instance."""
    for placement in plan.placements:
        run.instance(placement.instance).mkdir()
        run.log(placement.instance).touch()
