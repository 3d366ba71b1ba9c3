"""`ipulaunch ps`: the runs that lie here."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ipulaunch.configs.messages import note
from ipulaunch.configs.runs.directory import RUNS
from ipulaunch.launcher.cli.commands.status import runs_dir
from ipulaunch.launcher.launch.earlier_runs import all_runs, newest_first
from ipulaunch.launcher.launch.remembered import remembered_runs
from ipulaunch.launcher.runs.states import statuses
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.show.picture import table


@click.command("ps")
@runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(runs_dir: Path, as_json: bool) -> None:
    """List the runs here and those made with --run-dir elsewhere, the newest first."""
    here = [path.absolute() for path in all_runs(runs_dir)]
    elsewhere = [path for path in remembered_runs() if path not in here] if runs_dir == Path(RUNS) else []
    found, notes = statuses(newest_first([*here, *elsewhere]))
    show_messages(map(note, notes))
    if as_json:
        click.echo(json.dumps([status.data() for status in found], indent=1))
        return
    if not found:
        click.echo(f"there are no runs in {runs_dir}", err=True)
        return
    rows = [("run", "workload", "state", "updates", "started", "where")]
    for s in found:
        name = s.name if Path(s.path) in here else s.path
        rows.append((name, s.workload, s.state, s.progress, s.started, s.where))
    click.echo(table(rows))
