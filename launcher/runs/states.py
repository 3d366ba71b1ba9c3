"""The status of runs: by their records, by signs of life, and by the scheduler of those that were submitted."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import AbstractSet, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.configs.errors import DataError, IpulaunchError
from ipulaunch.configs.runs.directory import RunDirectory, records_of
from ipulaunch.configs.runs.job import job_of
from ipulaunch.configs.text import utc
from ipulaunch.launcher.launch.earlier_runs import started
from ipulaunch.launcher.runs.reached import how_far
from ipulaunch.launcher.runs.run_state import plan_of, state_from_records
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.scheduler import (
    CANCELLED,
    DONE,
    ENDED,
    FAILED,
    RUNNING,
    STOPPED,
    UNKNOWN,
    JobState,
    scheduler_of,
)
from ipulaunch.launcher.supervise.endings import preemptions, restarts, survival_of
from ipulaunch.launcher.supervise.processes import runs_here


class RunStatus(NamedTuple):
    """What is known of a run."""

    name: str
    path: str
    workload: str
    state: str
    said: str  # the words of the scheduler, or what shows the state
    update: int
    total: int
    waiting: float  # for data: the part of the time
    started: str  # UTC; when a submitted one was submitted
    where: str
    scheduler: str
    id: str
    restarts: int  # after failures
    max_restarts: Optional[int]  # of one launcher; None where there are no settings
    preemptions: int
    max_preemptions: Optional[int]

    @property
    def progress(self) -> str:
        if self.total:
            return f"{self.update}/{self.total}"
        return str(self.update or "-")  # the total is known once an attempt trains

    @property
    def can_be_resumed(self) -> bool:
        """Whether it has left what it was started with."""
        return self.max_restarts is not None

    def data(self) -> Dict[str, Any]:
        """The status as plain data."""
        return dict(self._asdict())


def statuses(paths: Sequence[Path]) -> Tuple[List[RunStatus], List[str]]:
    """The status of each run, and notes about schedulers that did not answer; each is asked once."""
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
        theirs = [job for job in jobs.values() if job.scheduler == name]
        try:
            observation = scheduler_of(name).observe(theirs)
        except IpulaunchError as error:
            notes.append(error.message)
            continue
        said.update({(name, number): state for number, state in observation.states.items()})
        notes += observation.notes
    found, living = [], runs_here()
    for path in paths:
        job = jobs.get(path)
        found.append(_status(path, job, said.get((job.scheduler, job.id)) if job else None, living))
    return found, notes


def state_of(path: Path) -> JobState:
    """The state of one run alone, without how far it is: that takes time in proportion to its records."""
    run = records_of(path)
    job, said = None, None
    with contextlib.suppress(IpulaunchError):  # the records say what a scheduler that does not answer cannot
        job = record.read(path)
        if job is not None:
            said = scheduler_of(job.scheduler).observe([job]).states.get(job.id)
    plan = plan_of(run) or plan_of(RunDirectory(path))
    return _combined(job, said, state_from_records(run, plan, runs_here(), is_here=job is None))


def how_to_end(path: Path) -> str:
    """What ends a run that has no launcher, as its command was pasted."""
    return f"end its poprun or mpirun; touch {RunDirectory(path).stop} lets it write a checkpoint first"


def _status(path: Path, job: Optional[Submitted], said: Optional[JobState], living: AbstractSet[Path]) -> RunStatus:
    run = records_of(path)
    plan = plan_of(run) or plan_of(RunDirectory(path))
    state = _combined(job, said, state_from_records(run, plan, living, is_here=job is None))
    training = job_of(run) or job_of(RunDirectory(path))
    reached = how_far(run, training, plan.instances if plan else 0)
    survival = survival_of(run) or survival_of(RunDirectory(path))
    hosts = ",".join(plan.hosts) if plan else ""
    return RunStatus(
        name=path.name,
        path=str(path),
        workload=plan.workload if plan else "",
        state=state.word,
        said=state.said,
        update=reached.update,
        total=reached.total,
        waiting=reached.waiting,
        started=job.submitted if job else utc(started(path)),
        where=f"{job.scheduler} {job.id}" + (f" on {state.where}" if state.where else "") if job else hosts,
        scheduler=job.scheduler if job else "",
        id=job.id if job else "",
        restarts=restarts(run),
        max_restarts=survival.max_restarts if survival else None,
        preemptions=preemptions(run),
        max_preemptions=survival.max_preemptions if survival else None,
    )


def _combined(job: Optional[Submitted], said: Optional[JobState], records: JobState) -> JobState:
    """The scheduler knows whether a job runs; the records know how it ended, also long afterwards."""
    if job is None:
        return records
    if said is None or said.word == UNKNOWN:
        return JobState(CANCELLED, f"at {job.cancelled}") if job.cancelled and records.word != DONE else records
    if said.word in ENDED and records.word in (RUNNING, DONE):  # taken up here with ipulaunch resume
        return records
    if said.word in (FAILED, STOPPED) and job.cancelled:  # a job that is asked to end stops, with a checkpoint
        return JobState(CANCELLED, said.said, said.where)
    if said.word == FAILED and records.word == STOPPED:
        return JobState(STOPPED, said.said, said.where)
    return said
