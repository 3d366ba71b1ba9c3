"""A plan on stdout: its numbers, the reasons for them, and its picture."""

from __future__ import annotations

import json

import click

from ipulaunch.launcher.cli.launch_output import solution_data
from ipulaunch.launcher.launch.planning import PROGRAM
from ipulaunch.launcher.show.messages import messages_data, show_messages
from ipulaunch.launcher.show.picture import draw_plan, draw_poprun_table, poprun_table_width, table
from ipulaunch.topology.planning.solver import Solution

_OF_BATCHES = ("micro_batch_size", "accumulation", "global_batch_size")
_WIDEST_TABLE = 200  # columns; PopRun's table of more replicas is longer than any terminal


def print_plan(solution: Solution, engine: str, *, explain: bool, whole: bool, as_json: bool) -> None:
    """The plan and its picture on stdout; notes and warnings on stderr."""
    if as_json:
        click.echo(json.dumps({**solution_data(solution), **messages_data(solution.messages)}, indent=1))
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
    click.echo(draw_plan(plan, whole))
    if poprun_table_width(plan) <= _WIDEST_TABLE:
        click.echo("\n" + draw_poprun_table(plan, engine))
    show_messages(solution.messages)
