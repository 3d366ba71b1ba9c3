"""`ipulaunch logs`: what the instances of a run have written."""

from __future__ import annotations

import time
from pathlib import Path
from typing import List, Optional, Tuple

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import records_of
from ipulaunch.launcher.cli.commands.status import runs_dir
from ipulaunch.launcher.runs.log_reading import Logs, sources
from ipulaunch.launcher.runs.states import find_run, statuses
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.scheduler import ENDING, RUNNING, UNKNOWN, WAITING, scheduler_of
from ipulaunch.launcher.schedulers.tools import show

LOOK_INTERVAL_S = 0.3
STATE_INTERVAL_S = 5.0  # schedulers do not like to be asked often


@click.command("logs")
@click.argument("run")
@runs_dir
@click.option("--follow", "-f", is_flag=True, help="Keep showing new lines until the run has ended.")
@click.option("--instance", type=click.IntRange(0), metavar="K", help="Show only this instance.")
def command(run: str, runs_dir: Path, follow: bool, instance: Optional[int]) -> None:
    """Show the logs of RUN, each line marked with the instance that wrote it."""
    path = find_run(run, runs_dir)
    job = record.read(path)
    argv = scheduler_of(job.scheduler).log_argv(job, follow) if job is not None else []
    if job is not None and argv:
        if instance is not None:
            raise UsageError("the logs of instances lie on the volume of the Pod", hint="leave --instance out")
        show(argv, f"the logs of {job.id}")
        return
    logs, read = sources(path, instance), Logs()
    lines = list(read.look(logs))
    _print(lines, instance)
    if not lines and not follow:
        events = records_of(path).events(instance or 0)
        where = f"; what happened is in {events}" if events.exists() else f" yet: see ipulaunch status {run}"
        click.echo(f"note: nothing was written{where}", err=True)
    while follow and _goes_on(path):
        deadline = time.monotonic() + STATE_INTERVAL_S
        while time.monotonic() < deadline:
            logs = sources(path, instance)  # an attempt may have begun
            _print(list(read.look(logs)), instance)
            time.sleep(LOOK_INTERVAL_S)
    if follow:
        _print(list(read.look(logs)), instance)
    _print(list(read.close(logs)), instance)


def _print(lines: List[Tuple[str, str]], instance: Optional[int]) -> None:
    for who, line in lines:
        click.echo(line if instance is not None else f"{who} | {line}")


def _goes_on(path: Path) -> bool:
    (status,), _ = statuses([path])
    waits_for_records = status.state == UNKNOWN and status.said == "no records"
    return status.state in (RUNNING, WAITING, ENDING) or (bool(status.scheduler) and waits_for_records)
