"""`ipulaunch logs`: what the instances of a run have written."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import List, Optional, Tuple

import click

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.launcher.commands.status import runs_dir
from ipulaunch.launcher.log_reading import Logs, sources
from ipulaunch.launcher.run_states import find_run, statuses
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.scheduler import ENDING, RUNNING, UNKNOWN, WAITING, scheduler_of

LOOK_INTERVAL_S = 0.3
STATE_INTERVAL_S = 5.0  # schedulers do not like to be asked often


@click.command("logs")
@click.argument("run")
@runs_dir
@click.option("--follow", "-f", is_flag=True, help="Show what is added, until the run has ended.")
@click.option("--instance", type=click.IntRange(0), metavar="K", help="Only this instance.")
def command(run: str, runs_dir: Path, follow: bool, instance: Optional[int]) -> None:
    """Show the logs of RUN, each line with who wrote it."""
    path = find_run(run, runs_dir)
    job = record.read(path)
    argv = scheduler_of(job.scheduler).log_argv(job, follow) if job is not None else []
    if argv:
        if instance is not None:
            raise UsageError("the logs of instances lie on the volume of the Pod", hint="leave --instance out")
        click.get_current_context().exit(_pass_on(argv))
    logs, read = sources(path, instance), Logs()
    _print(list(read.look(logs)), instance)
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


def _pass_on(argv: List[str]) -> int:
    try:
        return subprocess.run(argv, check=False).returncode
    except OSError as error:
        raise NotReadyError(f"{argv[0]} does not start: {error}") from error
