"""`ipulaunch plan`: the plan with every number's origin, the alternatives, and a picture."""

from __future__ import annotations

import json
from typing import Any, List, Optional

import click

from ipulaunch.configs.errors import UsageError, near_miss
from ipulaunch.configs.sections import Launch, Training
from ipulaunch.configs.workloads import SUMMARIES
from ipulaunch.launcher.commands.output import solution_data
from ipulaunch.launcher.commands.run import program_options
from ipulaunch.launcher.examination import Findings, examine
from ipulaunch.launcher.launch import PROGRAM, choose_engine, plan_for, plan_workload
from ipulaunch.launcher.options import (
    SettingsCommand,
    asked_from,
    engine_from,
    settings_from,
    settings_options,
    where_options,
)
from ipulaunch.launcher.picture import draw_plan, table
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.solver import Solution
from ipulaunch.topology.splits import suggest_splits as best_splits
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


def _name_it_first(ctx: click.Context, param: click.Parameter, value: Optional[str]) -> None:
    if value is not None and not ctx.resilient_parsing:
        raise UsageError("--suggest-splits comes after a workload", hint=f"plan imagenet --suggest-splits {value}")


@click.group("plan", cls=Plans, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
@click.option("--suggest-splits", hidden=True, expose_value=False, callback=_name_it_first, help="Of a workload.")
def command() -> None:
    """Show the plan for a workload, or for a program of your own: ipulaunch plan cosmoflow --pod 16 --explain"""


def _output_options(function: Any) -> Any:
    function = click.option("--json", "as_json", is_flag=True, help="The plan and its reasons as JSON.")(function)
    return click.option("--explain", is_flag=True, help="Every number with its origin, and what was rejected.")(
        function
    )


def _plan_workload(workload: str) -> click.Command:
    @click.command(workload, cls=SettingsCommand, help=f"Show the plan for {workload}.")
    @where_options
    @_output_options
    @click.option(
        "--suggest-splits", type=click.IntRange(2), metavar="STAGES", help="Print even pipeline stages and stop."
    )
    @settings_options(workload)
    def plan(explain: bool, as_json: bool, suggest_splits: Optional[int], **values: Any) -> None:
        engine = choose_engine(engine_from(values), dry_run=True)
        resolved = settings_from(workload, values, on_cpus=engine.name == "openmpi")
        if suggest_splits is not None:
            _print_suggestion(resolved.settings, suggest_splits, as_json)
            return
        solution = plan_workload(resolved, asked_from(values), engine, hosts_need_names=False)
        findings = examine(resolved, solution.plan, engine.backend)
        solution = solution._replace(warnings=(*solution.warnings, *findings.warnings))
        _print(solution, findings, explain, as_json)

    return plan


@click.command(PROGRAM)
@where_options
@_output_options
@program_options
def _plan_program(explain: bool, as_json: bool, **values: Any) -> None:
    """Show the plan for a PopDist program of your own."""
    names = ("ipus_per_replica", "num_replicas", "num_instances", "io_bound", "min_cores_per_instance")
    settings = Launch(**{name: values.pop(name) for name in names})
    engine = choose_engine(values["engine"], dry_run=True)
    asked = asked_from(values)
    solution = plan_for(PROGRAM, asked, engine, settings, Training(), {}, hosts_need_names=False)
    _print(solution, Findings(), explain, as_json)


def _print_suggestion(settings: Any, stages: int, as_json: bool) -> None:
    network = network_of(settings)
    micro_size = settings.training.micro_batch_size
    found = best_splits(network, stages, micro_size)
    ends = [*found.splits, network.layers[-1].name]
    if as_json:
        costs = [{"last_layer": last, **cost._asdict()} for last, cost in zip(ends, found.costs)]
        click.echo(json.dumps({"splits": found.splits, "balance": found.balance, "stages": costs}, indent=1))
        return
    rows = [("stage", "last layer", "GFLOP", "share", "parameters", "activations")]
    total = sum(cost.flops for cost in found.costs)
    for number, (cost, last) in enumerate(zip(found.costs, ends)):
        share = f"{cost.flops / total:.0%}"
        rows.append(
            (f"{number}", last, f"{cost.flops / 1e9:.3g}", share, f"{cost.parameters:,}", f"{cost.activations:,}")
        )
    click.echo(f"{network.name} in {stages} stages, balance {found.balance:.0%}; of a micro-batch of {micro_size},")
    click.echo("computed, forward and backward:\n")
    click.echo(table(rows) + "\n")
    click.echo(" ".join(f"--pipeline-splits {name}" for name in found.splits))


def _print(solution: Solution, findings: Findings, explain: bool, as_json: bool) -> None:
    if as_json:
        more = {"training": dict(findings.lines), "notes": list(findings.notes)}
        click.echo(json.dumps({**solution_data(solution), **more}, indent=1))
        return
    plan = solution.plan
    click.echo(plan.formula + "\n")
    if findings.lines:
        click.echo(table(findings.lines) + "\n")
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
    for note in findings.notes:
        click.echo(f"note: {note}", err=True)
    for warning in solution.warnings:
        click.echo(f"warning: {warning}", err=True)
