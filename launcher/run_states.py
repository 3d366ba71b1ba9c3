"""How runs are: told by their records, by signs of life, and by the scheduler of those that were submitted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import AbstractSet, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import DataError, IpulaunchError, UsageError, near_miss
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.launcher.events import Follower
from ipulaunch.launcher.run_processes import runs_here
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.scheduler import (
    CANCELLED,
    DONE,
    FAILED,
    RUNNING,
    STOPPED,
    UNKNOWN,
    JobState,
    scheduler_of,
)
from ipulaunch.topology import Plan
from ipulaunch.topology.plan import from_json

_FRESH_S = 30.0  # instances give a sign of life every second; a network disk may show it late


class RunStatus(NamedTuple):
    """What is known of a run."""

    name: str
    path: str
    workload: str
    state: str
    said: str  # the words of the scheduler, or what the state was told from
    update: int
    total: int
    started: str  # UTC; when a submitted one was submitted
    where: str
    scheduler: str
    id: str
    restarts: int

    @property
    def progress(self) -> str:
        return f"{self.update}/{self.total}" if self.total else "-"

    def data(self) -> Dict[str, Any]:
        """The status as plain data."""
        return dict(self._asdict())


def find_run(text: str, runs_dir: Path) -> Path:
    """The run that is meant: a directory, or the name of one among the runs."""
    for path in (Path(text), runs_dir / text):
        if path.is_dir():
            if not RunDirectory(path).plan.is_file():
                raise UsageError(f"{path} is not a run: it has no plan.json")
            return path.absolute()
    names = [path.name for path in all_runs(runs_dir)]
    hint = near_miss(text, names) if names else f"there are no runs in {runs_dir}; see --runs-dir"
    raise UsageError(f"there is no run {text}", hint=hint)


def all_runs(runs_dir: Path) -> List[Path]:
    """The runs of a directory, the newest first."""
    try:
        found = [path for path in runs_dir.iterdir() if RunDirectory(path).plan.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{runs_dir} cannot be read: {error.strerror}") from error
    return sorted(found, key=lambda path: (_started(path), path.name), reverse=True)


def statuses(paths: Sequence[Path]) -> Tuple[List[RunStatus], List[str]]:
    """The status of each run, and what schedulers would not say; each scheduler is asked once."""
    jobs: Dict[Path, Submitted] = {}
    notes: List[str] = []
    for path in paths:
        try:
            job = record.read(path)
        except DataError as error:
            notes.append(error.message)
            continue
        if job is not None:
            jobs[path] = job
    said: Dict[Tuple[str, str], JobState] = {}
    for name in sorted({job.scheduler for job in jobs.values()}):
        asked = [job for job in jobs.values() if job.scheduler == name]
        try:
            said.update({(name, number): state for number, state in scheduler_of(name).look(asked).items()})
        except IpulaunchError as error:
            notes.append(error.message)
    found, living = [], runs_here()
    for path in paths:
        job = jobs.get(path)
        found.append(_status(path, job, said.get((job.scheduler, job.id)) if job else None, living))
    return found, notes


def records_of(path: Path) -> RunDirectory:
    """Where the records of a run lie: a job makes the run directory inside the one that it was submitted with."""
    inside = RunDirectory(path / "run")
    return inside if inside.plan.is_file() else RunDirectory(path)


def plan_of(run: RunDirectory) -> Optional[Plan]:
    """The plan of a run, where it is whole."""
    try:
        return from_json(run.plan.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, IpulaunchError):
        return None


def _status(path: Path, job: Optional[Submitted], said: Optional[JobState], living: AbstractSet[Path]) -> RunStatus:
    run = records_of(path)
    plan = plan_of(run) or plan_of(RunDirectory(path))
    state = _combined(job, said, _from_records(run, plan, run.path in living, is_here=job is None))
    follower = Follower(run, 1)  # all instances make the same updates
    resumed = 0
    while True:
        records = follower.look()
        if not records:
            break
        counts = [r["update"] for r in records if r["event"] == "resumed" and isinstance(r["update"], int)]
        resumed = counts[-1] if counts else resumed
    follower.close()
    hosts = ",".join(plan.hosts) if plan else ""
    return RunStatus(
        name=path.name,
        path=str(path),
        workload=plan.workload if plan else "",
        state=state.word,
        said=state.said,
        update=max(follower.progress.update, resumed),
        total=follower.progress.total_updates,
        started=job.submitted if job else _utc(_started(path)),
        where=f"{job.scheduler} {job.id}" + (f" on {state.where}" if state.where else "") if job else hosts,
        scheduler=job.scheduler if job else "",
        id=job.id if job else "",
        restarts=sum(1 for _ in run.attempts.glob("*")),
    )


def _combined(job: Optional[Submitted], said: Optional[JobState], records: JobState) -> JobState:
    """The scheduler knows whether a job runs; the records know how it ended, also long afterwards."""
    if job is None:
        return records
    if said is None or said.word == UNKNOWN:
        known = records.word in (DONE, FAILED, STOPPED)
        return JobState(CANCELLED, f"at {job.cancelled}") if job.cancelled and not known else records
    if said.word == FAILED and records.word == STOPPED:
        return JobState(STOPPED, said.said, said.where)
    return said


def _from_records(run: RunDirectory, plan: Optional[Plan], is_alive: bool, *, is_here: bool) -> JobState:
    if plan is None:
        return JobState(UNKNOWN, "its plan cannot be read")
    instances = range(plan.instances)
    if all(run.done(index).exists() for index in instances):
        return JobState(DONE)
    if is_alive:
        return JobState(RUNNING)
    for index in instances:
        if run.error(index).exists():
            return JobState(FAILED, f"instance {index} has left an error")
    if any(run.stopped(index).exists() for index in instances):
        return JobState(STOPPED, "with a checkpoint")
    newest = max((_modified(run.heartbeat(index)) for index in instances), default=0.0)
    if newest and time.time() - newest < _FRESH_S:
        return JobState(RUNNING)
    if newest and is_here:
        return JobState(FAILED, f"no sign of life since {_utc(newest)}")
    return JobState(UNKNOWN, f"no sign of life since {_utc(newest)}" if newest else "no records")


def _started(path: Path) -> float:
    return _modified(RunDirectory(path).plan)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
