"""`ipulaunch cancel`: end a run."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import click

from ipulaunch.configs.errors import JobError, UsageError
from ipulaunch.launcher.commands.status import runs_dir
from ipulaunch.launcher.run_processes import launcher_of
from ipulaunch.launcher.run_states import find_run
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.scheduler import ENDED, scheduler_of


@click.command("cancel")
@click.argument("run")
@runs_dir
def command(run: str, runs_dir: Path) -> None:
    """End RUN: its job by the id that was recorded, or its launcher on this machine, which is asked with TERM."""
    path = find_run(run, runs_dir)
    job = record.read(path)
    if job is None:
        pid = launcher_of(path)
        if pid is None:
            raise UsageError(f"{path.name} does not run on this machine", hint=f"see ipulaunch status {run}")
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGTERM)
        click.echo(f"asked process {pid} to end")
        return
    scheduler = scheduler_of(job.scheduler)
    state = None
    with contextlib.suppress(JobError):  # whoever cannot be asked may still be told
        state = scheduler.look([job]).get(job.id)
    if state is not None and state.word in ENDED:
        raise UsageError(f"{job.scheduler} job {job.id} has ended: {state.said}")
    scheduler.cancel(job)
    record.write(path, job._replace(cancelled=record.now()))
    click.echo(f"cancelled {job.scheduler} job {job.id}")
