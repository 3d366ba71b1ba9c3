"""`ipulaunch status`: how a run is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ipulaunch.configs.run_directory import RUNS
from ipulaunch.launcher.picture import table
from ipulaunch.launcher.run_states import find_run, statuses

runs_dir = click.option(
    "--runs-dir", type=click.Path(path_type=Path), default=RUNS, show_default=True, help="Where runs lie."
)


@click.command("status")
@click.argument("run")
@runs_dir
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(run: str, runs_dir: Path, as_json: bool) -> None:
    """Show how RUN is: a run directory, or its name. Jobs are asked for by the id that the run has recorded."""
    (status,), notes = statuses([find_run(run, runs_dir)])
    for note in notes:
        click.echo(f"note: {note}", err=True)
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
    rows += [("restarts", str(status.restarts))] if status.restarts else []
    click.echo(table(rows))
