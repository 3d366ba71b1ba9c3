"""Launches and plans on stdout: a command to paste, or JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Optional

import click

from ipulaunch.configs.messages import note
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.launch.redaction import redacted
from ipulaunch.launcher.show.messages import messages_data, show_messages
from ipulaunch.topology.planning.plan import to_json
from ipulaunch.topology.planning.solver import Solution


def print_launch(launch: Launch, as_json: bool, run_dir: Optional[Path]) -> None:
    """The command of a dry run on stdout, alone; notes and warnings on stderr."""
    if run_dir is not None:
        makes = "no run directory" if launch.job is None else "a run directory of its own"
        show_messages([note(f"--run-dir is for runs; a pasted command makes {makes}")])
    command = redacted(launch.command, secret_values(os.environ))
    if as_json:
        data = {
            "engine": launch.engine.name,
            "argv": list(command.argv),
            "env": dict(command.env),
            **solution_data(launch.solution),
            **messages_data(launch.messages),
        }
        click.echo(json.dumps(data, indent=1))
        return
    show_messages(launch.messages)
    click.echo(command.shell())


def solution_data(solution: Solution) -> Dict[str, Any]:
    """A solution as plain data, without its messages."""
    return {
        "plan": json.loads(to_json(solution.plan)),
        "decisions": [decision._asdict() for decision in solution.decisions],
        "rejected": [rejected._asdict() for rejected in solution.rejected],
        "training": {fact.name: fact.text for fact in solution.training},
    }
