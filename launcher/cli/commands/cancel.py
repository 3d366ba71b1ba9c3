"""`ipulaunch cancel`: end a run."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
from pathlib import Path

import click

from ipulaunch.configs.errors import JobError, NotReadyError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory, records_of
from ipulaunch.configs.text import utc
from ipulaunch.launcher.cli.commands.status import run_argument, runs_dir
from ipulaunch.launcher.runs.finding import find_run
from ipulaunch.launcher.runs.states import how_to_end, statuses
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.scheduler import ENDED, RUNNING, scheduler_of
from ipulaunch.launcher.supervise.claim import Holder, holder_of


@click.command("cancel")
@run_argument
@runs_dir
def command(run: str, runs_dir: Path) -> None:
    """End RUN: cancel its job by the recorded id, or send SIGTERM to its launcher on this machine."""
    path = find_run(run, runs_dir)
    job = record.read(path)
    if job is None:
        holder = holder_of(RunDirectory(path))
        if holder is None:
            (status,), _ = statuses([path])
            if status.state == RUNNING:
                raise UsageError(f"{path.name} runs without a launcher", hint=how_to_end(path))
            raise UsageError(f"{path.name} is not running", hint=f"see ipulaunch status {run}")
        _end(holder, RunDirectory(path))
        return
    scheduler = scheduler_of(job.scheduler)
    state = None
    with contextlib.suppress(JobError, NotReadyError):  # a scheduler that does not answer may still take the request
        state = scheduler.observe([job]).states.get(job.id)
    if state is not None and state.word in ENDED:
        inside = records_of(path)
        holder = holder_of(inside)
        if holder is not None:  # taken up with ipulaunch resume
            _end(holder, inside)
            return
        raise UsageError(f"{job.scheduler} job {job.id} has ended: {state.said}")
    scheduler.cancel(job)
    record.write(path, job._replace(cancelled=utc()))
    click.echo(f"cancelled {job.scheduler} job {job.id}")


def _end(holder: Holder, run: RunDirectory) -> None:
    """Ask the launcher of a run, for good."""
    if not holder.is_known:
        raise UsageError(
            f"another launcher works on {run.path.name}, and its {run.launcher.name} does not say which",
            hint="end it where it was started, with Ctrl-C or kill",
        )
    if not holder.is_here:
        raise UsageError(
            f"{run.path.name} runs on {holder.host}, and this is {platform.node()}",
            hint=f"on {holder.host}: kill {holder.pid}",
        )
    with contextlib.suppress(OSError):  # on a full disk it is stopped as by anybody else
        run.cancel.touch()
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(holder.pid, signal.SIGTERM)
    click.echo(f"asked process {holder.pid} to end")
