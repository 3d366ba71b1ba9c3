"""`ipulaunch plan`: the plan with every number's origin, the alternatives, and a picture."""

from __future__ import annotations

import json
from typing import Any, List, Optional

import click

from ipulaunch.configs.errors import near_miss
from ipulaunch.configs.sections import Training
from ipulaunch.configs.workloads import SUMMARIES, schema_of
from ipulaunch.launcher.commands.output import solution_data
from ipulaunch.launcher.commands.run import launch_settings, program_options
from ipulaunch.launcher.launch import PROGRAM, choose_engine, plan_for
from ipulaunch.launcher.options import asked_from, settings_from, settings_options, where_options
from ipulaunch.launcher.picture import draw_plan, table
from ipulaunch.topology.batch import updates_per_epoch
from ipulaunch.topology.solver import Solution
from ipulaunch.topology.table import draw

_WIDEST_TABLE = 200  # columns; PopRun's table of more replicas is longer than any terminal


class Plans(click.Group):
    """One plan command for each workload, and one for programs."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        return [*SUMMARIES, PROGRAM]

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        if name in SUMMARIES:
            return _plan_workload(name)
        return _plan_program if name == PROGRAM else None

    def resolve_command(self, ctx: click.Context, args: List[str]) -> Any:
        is_unknown = args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx)
        if is_unknown and not ctx.resilient_parsing:
            hint = near_miss(args[0], self.list_commands(ctx))
            raise click.UsageError(f"There is no workload {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group("plan", cls=Plans, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Show the plan for a workload, or for a program of your own: ipulaunch plan cosmoflow --pod 16 --explain"""


def _output_options(function: Any) -> Any:
    function = click.option("--json", "as_json", is_flag=True, help="The plan and its reasons as JSON.")(function)
    return click.option("--explain", is_flag=True, help="Every number with its origin, and what was rejected.")(
        function
    )


def _plan_workload(workload: str) -> click.Command:
    @click.command(workload, help=f"Show the plan for {workload}.")
    @where_options
    @_output_options
    @settings_options(schema_of(workload))
    def plan(explain: bool, as_json: bool, **values: Any) -> None:
        engine = choose_engine(values["engine"], dry_run=True)
        resolved = settings_from(workload, values, on_cpus=engine.name == "openmpi")
        launch, training = resolved.settings.launch, resolved.settings.training
        asked = asked_from(values)
        solution = plan_for(workload, asked, engine, launch, training, resolved.origins, hosts_need_names=False)
        updates_per_epoch(resolved.settings.data.n_train, solution.plan.batch, training.remainder)
        _print(solution, explain, as_json)

    return plan


@click.command(PROGRAM)
@where_options
@_output_options
@program_options
def _plan_program(explain: bool, as_json: bool, **values: Any) -> None:
    """Show the plan for a PopDist program of your own."""
    names = ("ipus_per_replica", "num_replicas", "num_instances", "io_bound", "min_cores_per_instance")
    settings = launch_settings(**{name: values.pop(name) for name in names})
    engine = choose_engine(values["engine"], dry_run=True)
    asked = asked_from(values)
    solution = plan_for(PROGRAM, asked, engine, settings, Training(), {}, hosts_need_names=False)
    _print(solution, explain, as_json)


def _print(solution: Solution, explain: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(solution_data(solution), indent=1))
        return
    plan = solution.plan
    click.echo(plan.formula + "\n")
    if explain:
        rows = [(d.name.replace("_", " "), d.value, f"({d.origin})", d.why) for d in solution.decisions]
        click.echo(table(rows) + "\n")
        if solution.rejected:
            click.echo("instances not taken:")
            click.echo(table([(f"  {r.instances}", r.why) for r in solution.rejected]) + "\n")
    click.echo(draw_plan(plan))
    text = draw(plan)
    if len(text.split("\n", 1)[0]) <= _WIDEST_TABLE:
        click.echo("\n" + text)
    for warning in solution.warnings:
        click.echo(f"warning: {warning}", err=True)
