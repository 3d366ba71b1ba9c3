"""`ipulaunch plan`: the plan with every number's origin, the alternatives, and a picture."""

from __future__ import annotations

import json
from typing import Any, List, Optional

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.configs.settings.workloads import SUMMARIES
from ipulaunch.launcher.cli.commands.output import solution_data
from ipulaunch.launcher.cli.commands.run import program_options, program_settings
from ipulaunch.launcher.cli.groups import NearMissGroup
from ipulaunch.launcher.cli.options import (
    asked_from,
    engine_from,
    settings_from,
    settings_options,
    where_options,
    with_help,
)
from ipulaunch.launcher.cli.settings_command import SettingsCommand
from ipulaunch.launcher.launch.examination import Findings
from ipulaunch.launcher.launch.launch_options import choose_engine
from ipulaunch.launcher.launch.planning import PROGRAM, plan_program, plan_workload
from ipulaunch.launcher.show.picture import draw_plan, table
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.network import Cost
from ipulaunch.topology.networks.splits import suggest_splits as best_splits
from ipulaunch.topology.planning.rules import IPUS_PER_REPLICA
from ipulaunch.topology.planning.solver import Solution
from ipulaunch.topology.planning.table import columns, draw

_HELP = {
    "engine": "What starts the instances. Default: poprun.",
    "hosts": "Hosts to plan for: a,b or host[0-3]. Default: as many as come with the IPUs.",
}
_SUGGEST = "--suggest-splits"
_SPLIT_BY_DEFAULT = "imagenet"  # the workload of Graphcore's application
_OF_BATCHES = ("micro_batch_size", "accumulation", "global_batch_size")
_WIDEST_TABLE = 200  # columns; PopRun's table of more replicas is longer than any terminal


class Plans(NearMissGroup):
    """One plan command for each workload, and one for programs."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        return [*SUMMARIES, PROGRAM]

    def parse_args(self, ctx: click.Context, args: List[str]) -> List[str]:
        """Put the workload first, where it is named after --suggest-splits or not at all."""
        if args and args[0].partition("=")[0] == _SUGGEST:
            name = next((word for word in args if word in SUMMARIES), _SPLIT_BY_DEFAULT)
            args = [name, *(word for word in args if word != name)]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        if name in SUMMARIES:
            return _plan_workload(name)
        return _plan_program if name == PROGRAM else None


@click.group("plan", cls=Plans, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
@click.option(
    _SUGGEST,
    expose_value=False,
    metavar="STAGES",
    help=f"Propose pipeline splits. Of {_SPLIT_BY_DEFAULT}, unless a workload is named.",
)
def command() -> None:
    """Show the plan for a workload, or for a program of your own: ipulaunch plan cosmoflow --pod 16 --explain"""


def _output_options(function: Any) -> Any:
    function = click.option("--json", "as_json", is_flag=True, help="Print the plan and its reasons as JSON.")(function)
    return click.option("--explain", is_flag=True, help="Show where every number comes from, and what was rejected.")(
        function
    )


def _plan_workload(workload: str) -> click.Command:
    @click.command(workload, cls=SettingsCommand, help=f"Show the plan for {workload}.")
    @where_options
    @_output_options
    @click.option(
        _SUGGEST,
        type=click.IntRange(2),
        metavar="STAGES",
        help="Propose pipeline splits for so many even stages, and stop.",
    )
    @click.option(
        "--splits-by",
        type=click.Choice(Cost._fields[::-1]),
        help="With --suggest-splits: what the stages should have equal shares of. Default: flops.",
    )
    @settings_options(workload)
    def plan(
        explain: bool, as_json: bool, suggest_splits: Optional[int], splits_by: Optional[str], **values: Any
    ) -> None:
        if splits_by is not None and suggest_splits is None:
            raise UsageError(f"--splits-by {splits_by} is for --suggest-splits", hint="give --suggest-splits STAGES")
        engine = choose_engine(engine_from(values), dry_run=True)
        resolved = settings_from(workload, values, on_cpus=engine.name == "openmpi")
        if suggest_splits is not None:
            if resolved.settings.pipeline.splits:
                raise UsageError(
                    "--suggest-splits looks for splits, and some are given", hint="leave --pipeline-splits out"
                )
            _print_suggestion(resolved.settings, suggest_splits, splits_by or "flops", as_json)
            return
        planned = plan_workload(resolved, asked_from(values), engine, hosts_need_names=False)
        _print(planned.solution, planned.findings, explain, as_json)

    with_help(plan, _HELP)
    return plan


@click.command(PROGRAM)
@where_options
@_output_options
@program_options
def _plan_program(explain: bool, as_json: bool, **values: Any) -> None:
    """Show the plan for a PopDist program of your own."""
    settings = program_settings(values)
    engine = choose_engine(values["engine"], dry_run=True)
    asked = asked_from(values)
    solution = plan_program(asked, engine, settings, hosts_need_names=False)
    _print(solution, Findings(), explain, as_json)


with_help(_plan_program, _HELP)


def _print_suggestion(settings: WorkloadSettings, stages: int, by: str, as_json: bool) -> None:
    network = network_of(settings)
    micro_size = settings.training.micro_batch_size
    found = best_splits(network, stages, micro_size, by)
    starts = [network.layers[0].name, *found.splits]
    if as_json:
        costs = [{"first_layer": first, **cost._asdict()} for first, cost in zip(starts, found.costs)]
        click.echo(json.dumps({"splits": found.splits, "balance": found.balance, "stages": costs}, indent=1))
        return
    rows = [("stage", "first layer", "GFLOP", "share", "parameters", "activations")]
    total = sum(getattr(cost, by) for cost in found.costs)
    for number, (cost, first) in enumerate(zip(found.costs, starts)):
        share = f"{getattr(cost, by) / total:.0%}"
        rows.append(
            (f"{number}", first, f"{cost.flops / 1e9:.3g}", share, f"{cost.parameters:,}", f"{cost.activations:,}")
        )
    click.echo(
        f"{network.name} in {stages} stages, balance {found.balance:.0%} by {by}. Computed for a micro-batch of"
        f" {micro_size}, forward and backward:\n"
    )
    click.echo(table(rows) + "\n")
    click.echo(" ".join(f"--pipeline-splits {name}" for name in found.splits))
    if stages not in IPUS_PER_REPLICA:
        click.echo(
            f"note: a replica has no {stages} IPUs (R6): put several stages on an IPU with --device-mapping", err=True
        )


def _print(solution: Solution, findings: Findings, explain: bool, as_json: bool) -> None:
    if as_json:
        training = {finding.name: finding.text for finding in findings.lines}
        more = {"training": training, "notes": list(findings.notes)}
        click.echo(json.dumps({**solution_data(solution), **more}, indent=1))
        return
    plan = solution.plan
    knows_batch = plan.workload != PROGRAM  # a program has its own
    click.echo((plan.formula if knows_batch else plan.division) + "\n")
    if findings.lines:
        click.echo(table([(finding.name, finding.text) for finding in findings.lines]) + "\n")
    if explain:
        told = [decision for decision in solution.decisions if knows_batch or decision.name not in _OF_BATCHES]
        rows = [(d.name.replace("_", " "), d.value, f"({d.origin})", d.why) for d in told]
        click.echo(table(rows) + "\n")
        if solution.rejected:
            click.echo("instances not taken:")
            click.echo(table([(f"  {r.instances}", r.why) for r in solution.rejected]) + "\n")
    click.echo(draw_plan(plan))
    if columns(plan) <= _WIDEST_TABLE:
        click.echo("\n" + draw(plan))
    for note in findings.notes:
        click.echo(f"note: {note}", err=True)
    for warning in solution.warnings:
        click.echo(f"warning: {warning}", err=True)
