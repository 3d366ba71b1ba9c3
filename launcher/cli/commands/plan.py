"""`ipulaunch plan`: the plan with every number's origin, the alternatives, and a picture."""

from __future__ import annotations

from typing import Any, List, Optional

import click

from ipulaunch.configs.settings.workloads import SUMMARIES
from ipulaunch.launcher.cli.groups import WorkloadGroup
from ipulaunch.launcher.cli.launch_output import print_plan
from ipulaunch.launcher.cli.options import (
    engine_from,
    launch_options_from,
    program_options,
    program_settings,
    where_options,
    with_help,
)
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.engines.registry import choose_engine
from ipulaunch.launcher.launch.capacity_check import check_ipus
from ipulaunch.launcher.launch.planning import PROGRAM, hosts_of_pod
from ipulaunch.launcher.launch.program_planning import plan_program
from ipulaunch.launcher.launch.workload_planning import plan_workload
from ipulaunch.launcher.show.split_suggestion import SUGGEST, print_suggestion, refuse_splits_by, splits_options

_HELP = {
    "engine": "What starts the instances. Default: poprun.",
    "hosts": "Hosts to plan for: a,b or host[0-3]. Default: as many as come with the IPUs.",
}
_SPLIT_BY_DEFAULT = "imagenet"  # the workload of Graphcore's application


class Plans(WorkloadGroup):
    """One plan command for each workload, and one for programs."""

    def parse_args(self, ctx: click.Context, args: List[str]) -> List[str]:
        """Put the workload first, where it is named after --suggest-splits or not at all."""
        if args and args[0].partition("=")[0] == SUGGEST:
            name = next((word for word in args if word in SUMMARIES), _SPLIT_BY_DEFAULT)
            args = [name, *(word for word in args if word != name)]
        return super().parse_args(ctx, args)


@click.group("plan", cls=Plans, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
@click.option(
    SUGGEST,
    expose_value=False,
    metavar="STAGES",
    help=f"Propose pipeline splits. Of {_SPLIT_BY_DEFAULT}, unless a workload is named.",
)
def command() -> None:
    """Show the plan for a workload, or for a program of your own: ipulaunch plan cosmoflow --pod 16 --explain"""


def _output_options(function: Any) -> Any:
    function = click.option("--json", "as_json", is_flag=True, help="Print the plan and its reasons as JSON.")(function)
    function = click.option("--all", "whole", is_flag=True, help="Show every host and instance.")(function)
    return click.option("--explain", is_flag=True, help="Show where every number comes from, and what was rejected.")(
        function
    )


@command.for_each_workload
def _plan_workload(workload: str) -> click.Command:
    @workload_command(workload, f"Show the plan for {workload}.")
    @where_options
    @_output_options
    @splits_options
    @settings_options(workload)
    def plan(
        explain: bool,
        whole: bool,
        as_json: bool,
        suggest_splits: Optional[int],
        splits_by: Optional[str],
        **values: Any,
    ) -> None:
        refuse_splits_by(splits_by, suggest_splits)
        engine = choose_engine(engine_from(values), dry_run=True)
        resolved = settings_from(workload, values, on_cpus=engine.is_rehearsal)
        if suggest_splits is not None:
            print_suggestion(resolved.settings, suggest_splits, splits_by or "flops", as_json)
            return
        solution = plan_workload(resolved, launch_options_from(values), engine, unnamed=hosts_of_pod)
        from ipulaunch.launcher.runs.expected_duration import solution_with_duration  # a suggestion does without

        solution = solution_with_duration(solution, workload, engine.backend, resolved.settings)
        check = None if engine.is_rehearsal else check_ipus(workload, resolved.settings, solution.plan)
        if check is not None:
            training, messages = (*solution.training, check.fact), (*solution.messages, *check.messages)
            solution = solution._replace(training=training, messages=messages)
        memory = check.memory if check is not None else ()
        print_plan(solution, engine.name, explain=explain, whole=whole, as_json=as_json, memory=memory)

    with_help(plan, _HELP)
    return plan


@command.command(PROGRAM)
@where_options
@_output_options
@program_options
def _plan_program(explain: bool, whole: bool, as_json: bool, **values: Any) -> None:
    """Show the plan for a PopDist program of your own."""
    settings = program_settings(values)
    engine = choose_engine(values["engine"], dry_run=True)
    options = launch_options_from(values)
    solution = plan_program(options, engine, settings, unnamed=hosts_of_pod)
    print_plan(solution, engine.name, explain=explain, whole=whole, as_json=as_json)


with_help(_plan_program, _HELP)
