"""What commands print on stdout."""

from __future__ import annotations

import json
from typing import Any, Dict

import click

from ipulaunch.launcher.launch import Launch
from ipulaunch.topology.plan import to_json
from ipulaunch.topology.solver import Solution


def print_launch(launch: Launch, as_json: bool) -> None:
    """The command of a dry run on stdout, alone; notes and warnings on stderr."""
    if as_json:
        data = {
            "engine": launch.engine.name,
            "argv": list(launch.command.argv),
            "env": dict(launch.command.env),
            "notes": list(launch.notes),
            "training": dict(launch.training),
            **solution_data(launch.solution),
        }
        click.echo(json.dumps(data, indent=1))
        return
    for note in launch.notes:
        click.echo(f"note: {note}", err=True)
    for warning in launch.solution.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(launch.command.shell())


def solution_data(solution: Solution) -> Dict[str, Any]:
    """A solution as plain data."""
    return {
        "plan": json.loads(to_json(solution.plan)),
        "decisions": [decision._asdict() for decision in solution.decisions],
        "rejected": [rejected._asdict() for rejected in solution.rejected],
        "warnings": list(solution.warnings),
    }
