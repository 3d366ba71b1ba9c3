"""`ipulaunch logs`: what the instances of a run have written."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, List, Optional, Tuple

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import records_of
from ipulaunch.launcher.cli.commands.status import run_argument, runs_dir
from ipulaunch.launcher.runs.finding import find_run
from ipulaunch.launcher.runs.run_state import plan_of
from ipulaunch.launcher.runs.states import statuses
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.scheduler import ENDING, RUNNING, UNKNOWN, WAITING, scheduler_of
from ipulaunch.launcher.schedulers.tools import show

_MOST_PER_LOOK = 1 << 20


def sources(path: Path, instance: Optional[int]) -> Dict[str, Path]:
    """The logs of a run by who wrote them: the scheduler, the engine, and each instance or one of them."""
    run = records_of(path)
    plan = plan_of(run)
    if instance is not None:
        if plan is not None and instance >= plan.instances:
            raise UsageError(f"there is no instance {instance}: the run has 0 to {plan.instances - 1}")
        return {str(instance): run.log(instance)}
    found = {"scheduler": path / "scheduler.log", "engine": run.engine_log}
    for placement in plan.placements if plan is not None else ():
        found[f"{placement.host}:{placement.instance}"] = run.log(placement.instance)
    return found


class Logs:
    """What was added to some logs since the last look."""

    def __init__(self) -> None:
        self.files: Dict[Path, BinaryIO] = {}
        self.rest: Dict[Path, bytes] = {}

    def look(self, logs: Dict[str, Path]) -> Iterator[Tuple[str, str]]:
        """The new lines, each with who wrote it; until there are no more."""
        for who, path in logs.items():
            while True:
                lines = self._lines(path)
                if not lines:
                    break
                yield from ((who, line.decode(errors="replace")) for line in lines)

    def close(self, logs: Dict[str, Path]) -> Iterator[Tuple[str, str]]:
        """The last lines, where they were not ended."""
        names = {path: who for who, path in logs.items()}
        for path, file in self.files.items():
            file.close()
            if self.rest[path] and path in names:
                yield names[path], self.rest[path].decode(errors="replace")

    def _lines(self, path: Path) -> List[bytes]:
        if path not in self.files:
            try:
                self.files[path] = path.open("rb")
            except OSError:  # not there yet
                return []
            self.rest[path] = b""
        is_old = self._was_replaced(path)  # asked first: what was written before that is then read to its end
        while True:
            data = self.files[path].read(_MOST_PER_LOOK)
            *lines, self.rest[path] = (self.rest[path] + data).split(b"\n")
            if lines:
                return lines
            if not data:
                return self._next(path) if is_old else []

    def _was_replaced(self, path: Path) -> bool:
        """Whether a new attempt has moved the file away, and there is another one in its place."""
        try:
            return not os.path.samestat(os.fstat(self.files[path].fileno()), path.stat())
        except OSError:  # not there yet
            return False

    def _next(self, path: Path) -> List[bytes]:
        """The last line of a file that was moved away, where it was not ended, and the first of the next file."""
        self.files.pop(path).close()
        rest = self.rest.pop(path)
        return [rest] if rest else self._lines(path)


LOOK_INTERVAL_S = 0.3
STATE_INTERVAL_S = 5.0  # schedulers do not like to be asked often


@click.command("logs")
@run_argument
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
