"""What every scheduler can do, and the scheduler of a name."""

from __future__ import annotations

import importlib
from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ipulaunch.launcher.schedulers.job import ClusterJob
from ipulaunch.launcher.schedulers.record import Submitted

# Our words for the states of jobs.
WAITING, RUNNING, ENDING, DONE, FAILED, CANCELLED, STOPPED, UNKNOWN = (
    "waiting",
    "running",
    "ending",
    "done",
    "failed",
    "cancelled",
    "stopped",
    "unknown",
)
ENDED = (DONE, FAILED, CANCELLED, STOPPED)


class JobState(NamedTuple):
    """The state of a job: our word, the scheduler's own words, and the hosts."""

    word: str
    said: str = ""
    where: str = ""


class Observation(NamedTuple):
    """The states of jobs; a scheduler may have forgotten some."""

    states: Dict[str, JobState]  # by the ids of the jobs
    notes: Tuple[str, ...] = ()  # what could not be observed


def logs_in_files(job: Submitted, follow: bool) -> List[str]:
    """No command: the logs are files in the run directory."""
    return []


class Scheduler(NamedTuple):
    """A scheduler: renders a job, submits it, observes it and cancels it."""

    file_name: str
    render: Callable[[ClusterJob], str]
    submit: Callable[[str], Mapping[str, str]]  # path of the script; returns what identifies the job
    observe: Callable[[Sequence[Submitted]], Observation]  # an error if the scheduler does not answer at all
    cancel: Callable[[Submitted], None]
    log_argv: Callable[[Submitted, bool], List[str]] = logs_in_files  # the command that shows or follows the logs
    submits: str = ""  # the command that submits a script again; none for Pods, whose run is on their volume


def scheduler_of(name: str) -> Scheduler:
    """The scheduler of a name; its module is loaded when it is needed."""
    module = importlib.import_module(f"ipulaunch.launcher.schedulers.{name}")
    found: Scheduler = module.SCHEDULER
    return found
