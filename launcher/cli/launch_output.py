"""Launches and plans on stdout: a command to paste, a plan with its reasons and its picture, or JSON."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence

import click

from ipulaunch.configs.messages import note
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.configs.runs.untrusted import parse_json
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.launch.planning import PROGRAM
from ipulaunch.launcher.launch.redaction import redacted
from ipulaunch.launcher.show.messages import messages_data, show_messages
from ipulaunch.topology.planning.plan import to_json
from ipulaunch.topology.planning.solver import Solution

if TYPE_CHECKING:
    from ipulaunch.topology.capacity.memory import IpuMemory

_OF_BATCHES = ("micro_batch_size", "accumulation", "global_batch_size")
_WIDEST_TABLE = 200  # columns; PopRun's table of more replicas is longer than any terminal


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
        _print_json(data)
        return
    show_messages(launch.messages)
    click.echo(command.shell())


def solution_data(solution: Solution) -> Dict[str, Any]:
    """A solution as plain data, without its messages."""
    return {
        "plan": parse_json(to_json(solution.plan)),
        "decisions": [decision._asdict() for decision in solution.decisions],
        "rejected": [rejected._asdict() for rejected in solution.rejected],
        "training": {fact.name: fact.text for fact in solution.training},
    }


def print_plan(
    solution: Solution, engine: str, *, explain: bool, whole: bool, as_json: bool, memory: Sequence[IpuMemory] = ()
) -> None:
    """The plan and its picture on stdout; notes and warnings on stderr."""
    from ipulaunch.launcher.show.picture import draw_plan, draw_poprun_table, poprun_table_width, table

    if as_json:
        needs = {"memory": [each.as_data() for each in memory]} if memory else {}
        _print_json({**solution_data(solution), **needs, **messages_data(solution.messages)})
        return
    plan = solution.plan
    knows_batch = plan.workload != PROGRAM  # a program has its own
    click.echo((plan.formula if knows_batch else plan.division) + "\n")
    if solution.training:
        click.echo(table([(fact.name, fact.text) for fact in solution.training]) + "\n")
    if explain:
        told = [decision for decision in solution.decisions if knows_batch or decision.name not in _OF_BATCHES]
        rows = [(d.name.replace("_", " "), d.value, f"({d.origin})", d.why) for d in told]
        click.echo(table(rows) + "\n")
        if solution.rejected:
            click.echo("instances not taken:")
            click.echo(table([(f"  {r.instances}", r.why) for r in solution.rejected]) + "\n")
        if memory:
            from ipulaunch.launcher.show.memory_table import memory_table

            click.echo(memory_table(memory) + "\n")
    click.echo(draw_plan(plan, whole))
    if poprun_table_width(plan) <= _WIDEST_TABLE:
        click.echo("\n" + draw_poprun_table(plan, engine))
    show_messages(solution.messages)


def _print_json(data: Dict[str, Any]) -> None:
    import json  # here, because a dry run needs none

    click.echo(json.dumps(data, indent=1))
