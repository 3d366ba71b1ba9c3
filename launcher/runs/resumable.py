"""Whether a run can be continued, and what it continues with."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Iterator, Tuple

from ipulaunch.configs.errors import DataError, PlanError, UsageError
from ipulaunch.configs.messages import note
from ipulaunch.configs.runs.directory import RunDirectory, records_of
from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.launcher.runs.states import how_to_end, statuses
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.scheduler import ENDING, RUNNING, WAITING, scheduler_of
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.supervise.endings import read_endings
from ipulaunch.topology import Plan
from ipulaunch.topology.planning.plan import from_json


def require_ended(path: Path) -> None:
    """Refuse a run that its job still works on, or will; two would write the same checkpoints.

    So would instances that were started without a launcher. A launcher that lives keeps others away by itself.
    """
    job = record.read(path)
    if job is not None and record.is_this(job, os.environ):
        return
    (status,), notes = statuses([path])
    if job is None:
        if status.state == RUNNING and not RunDirectory(path).launcher.exists():
            raise UsageError(f"{path.name} runs, without a launcher", hint=f"wait for it, or {how_to_end(path)}")
        return
    unknown = f"whether {job.scheduler} job {job.id} has ended is not known"
    show_messages(note(f"{text}; {unknown}") for text in notes)
    if status.state in (WAITING, RUNNING, ENDING):
        raise UsageError(
            f"{job.scheduler} job {job.id} of {path.name} is {status.state}: it continues the run by itself",
            hint=f"wait for it, or end it first with ipulaunch cancel {path}",
        )
    if records_of(path).path == path:
        again = scheduler_of(job.scheduler).submits
        hint = f"{again} {path / job.script} starts it" if again else "submit again with --resume, on the same volume"
        raise UsageError(f"{job.scheduler} job {job.id} has left no records in {path}", hint=hint)


def read_decided(run: RunDirectory) -> Tuple[Plan, Job]:
    """The plan and the job of a run, from its directory."""
    with _readable(run):
        return from_json(read_text(run.plan)), from_yaml(read_text(run.job), str(run.job))


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run, from its directory."""
    with _readable(run):
        return from_json(read_text(run.plan))


def is_done(run: RunDirectory) -> bool:
    """Whether the last attempt of a program has ended well."""
    endings = read_endings(run)
    return bool(endings) and not endings[-1].exit_code


@contextlib.contextmanager
def _readable(run: RunDirectory) -> Iterator[None]:
    try:
        yield
    except PlanError as error:
        raise DataError(
            f"{run.path} cannot be resumed: {run.plan}: {error.message}",
            hint="start a new run; --resume on a workload's command line continues from its checkpoints",
        ) from error
    except OSError as error:
        raise UsageError(
            f"{run.path} cannot be resumed: its {Path(str(error.filename)).name} cannot be read, {error.strerror}",
            hint="runs that ipulaunch started can; --resume on a workload's command line continues from checkpoints",
        ) from error
