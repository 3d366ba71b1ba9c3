"""`ipulaunch capacity`: the chain from the disk to the IPUs, its slowest link, and what would help."""

from __future__ import annotations

from typing import Any

import click

from ipulaunch.configs.runs.job import Job
from ipulaunch.launcher.cli.capacity_measurement import measure
from ipulaunch.launcher.cli.capacity_options import capacity_options, rates_from
from ipulaunch.launcher.cli.capacity_output import print_capacity
from ipulaunch.launcher.cli.groups import WorkloadGroup
from ipulaunch.launcher.cli.options import (
    engine_from,
    launch_options_from,
    where_options,
    with_help,
)
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.engines.registry import choose_engine
from ipulaunch.launcher.launch.capacity import capacity_of, limits_of
from ipulaunch.launcher.launch.planning import hosts_of_pod
from ipulaunch.launcher.launch.workload_planning import plan_workload
from ipulaunch.topology.capacity.inputs import inputs_of

_HELP = {
    "engine": "What starts the instances. Default: poprun. openmpi: the capacity of a rehearsal.",
    "hosts": "Hosts to plan for: a,b or host[0-3]. Default: as many as come with the IPUs.",
}


@click.group("capacity", cls=WorkloadGroup, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Show whether the hosts keep the IPUs busy: ipulaunch capacity imagenet --pod 64 --dataset-path D

    Of the chain disk, decoding, host memory, host link, IPUs it shows each rate and where the number comes from, the
    slowest link, epochs per hour, energy and memory, and what would help.
    """


@command.for_each_workload
def _capacity(workload: str) -> click.Command:
    @workload_command(workload, f"Show whether the hosts keep the IPUs busy with {workload}.")
    @where_options
    @capacity_options(workload)
    @settings_options(workload)
    def capacity(**values: Any) -> None:
        as_json, svg, form = values.pop("as_json"), values.pop("svg"), values.pop("form", None) or ""
        is_measured = values.pop("measure")
        rates = rates_from(values)
        engine = choose_engine(engine_from(values), dry_run=True)
        resolved = settings_from(workload, values, on_cpus=engine.is_rehearsal)
        options = launch_options_from(values)
        solution = plan_workload(resolved, options, engine, unnamed=hosts_of_pod)
        job, plan = Job(workload, engine.backend, resolved.settings), solution.plan
        inputs_of(job, plan, form, {}, rates, is_here=False)  # refuses before anything is measured
        is_here = (engine.is_rehearsal or engine.is_here) and options.host_layout is None
        measured, messages = measure(job, plan, form, is_here=is_here) if is_measured else ({}, [])
        inputs = inputs_of(job, plan, form, measured, rates, is_here=is_here)
        uses_isal = measured.get("uses_isal") if is_here else None
        found = capacity_of(job.settings, plan, inputs, limits_of(options, plan, uses_isal))
        print_capacity(found, [*messages, *solution.messages], as_json=as_json, svg=svg)

    with_help(capacity, _HELP)
    return capacity
