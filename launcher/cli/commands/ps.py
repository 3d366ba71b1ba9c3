"""`ipulaunch ps`: the runs that lie here."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ipulaunch.configs.messages import note
from ipulaunch.launcher.cli.commands.status import runs_dir
from ipulaunch.launcher.launch.earlier_runs import all_runs
from ipulaunch.launcher.runs.states import statuses
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.show.picture import table


@click.command("ps")
@runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(runs_dir: Path, as_json: bool) -> None:
    """List the runs, the newest first."""
    found, notes = statuses([path.absolute() for path in all_runs(runs_dir)])
    show_messages(map(note, notes))
    if as_json:
        click.echo(json.dumps([status.data() for status in found], indent=1))
        return
    if not found:
        click.echo(f"there are no runs in {runs_dir}", err=True)
        return
    rows = [("run", "workload", "state", "updates", "started", "where")]
    rows += [(s.name, s.workload, s.state, s.progress, s.started, s.where) for s in found]
    click.echo(table(rows))
