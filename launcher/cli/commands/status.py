"""`ipulaunch status`: how a run is."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Optional

import click

from ipulaunch.configs.messages import note
from ipulaunch.configs.runs.directory import RUNS
from ipulaunch.configs.runs.times import waiting_text
from ipulaunch.launcher.cli.options import offers
from ipulaunch.launcher.runs.finding import find_run
from ipulaunch.launcher.runs.states import RunStatus, statuses
from ipulaunch.launcher.schedulers.scheduler import CANCELLED, FAILED, STOPPED
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.show.picture import table

run_argument = click.argument("run", shell_complete=offers("run_names"))
runs_dir = click.option(
    "--runs-dir",
    type=click.Path(path_type=Path),
    default=RUNS,
    show_default=True,
    help="Directory that holds the runs.",
)


@click.command("status")
@run_argument
@runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def command(run: str, runs_dir: Path, as_json: bool) -> None:
    """Show the state of RUN: a run directory, its name, or the id of its job."""
    (status,), notes = statuses([find_run(run, runs_dir)])
    show_messages(map(note, notes))
    if as_json:
        click.echo(json.dumps(status.data(), indent=1))
        return
    rows: Any = [
        ("run", status.path),
        ("workload", status.workload),
        ("state", f"{status.state}: {status.said}" if status.said else status.state),
        ("updates", status.progress),
        ("submitted" if status.scheduler else "started", status.started),
        ("where", status.where),
    ]
    waiting = waiting_text(status.waiting)
    if waiting:
        rows.append(("time", waiting))
    if status.restarts or status.max_restarts:
        rows.append(("restarts", _restarts(status)))
    if status.preemptions:
        rows.append(("preempted", _of(status.preemptions, status.max_preemptions)))
    name = shlex.quote(status.path)
    if status.state in (FAILED, STOPPED, CANCELLED) and status.can_be_resumed:
        rows.append(("resume", f"ipulaunch resume {name}"))
    rows.append(("logs", f"ipulaunch logs {name}"))
    click.echo(table(rows))


def _restarts(status: RunStatus) -> str:
    count, most = status.restarts, status.max_restarts
    if most is not None and count > most:
        return f"{count}, with ipulaunch resume; --max-restarts {most} is for one launcher"
    return _of(count, most)


def _of(count: int, most: Optional[int]) -> str:
    return str(count) if most is None else f"{count} of {most}"
