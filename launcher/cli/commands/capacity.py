"""`ipulaunch capacity`: the chain from the disk to the IPUs, its slowest link, and what would help."""

from __future__ import annotations

from typing import Any, Callable, List

import click

from ipulaunch.launcher.cli.capacity_output import print_capacity
from ipulaunch.launcher.cli.groups import WorkloadGroup
from ipulaunch.launcher.cli.options import (
    PATH,
    Decorator,
    decorate,
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
from ipulaunch.topology.capacity.forms import FORMS
from ipulaunch.topology.capacity.given_rates import GivenRates, with_given
from ipulaunch.topology.capacity.known_rates import known_inputs

_HELP = {
    "engine": "What starts the instances. Default: poprun. openmpi: the capacity of a rehearsal.",
    "hosts": "Hosts to plan for: a,b or host[0-3]. Default: as many as come with the IPUs.",
}


def _rate(flag: str, metavar: str, about: str) -> Decorator:
    return click.option(flag, type=click.FloatRange(0, min_open=True), metavar=metavar, help=about)


_RATES: List[Decorator] = [
    _rate("--ipu-rate", "SAMPLES/S", "Samples/s that one IPU takes. Default: published for ResNet-50, else not known."),
    _rate("--decode-rate", "SAMPLES/S", "Samples/s that one core unpacks or decodes. Default: measured or assumed."),
    _rate("--disk-rate", "GB/S", "Gigabytes/s that one host reads. Default: measured or assumed."),
    _rate("--link", "GBIT", "Gigabits/s between one host and its IPUs. Default: 100."),
]
_OUTPUT: List[Decorator] = [
    click.option("--json", "as_json", is_flag=True, help="Print everything as JSON."),
    click.option("--svg", type=PATH, metavar="FILE", help="Also draw the chain into this file."),
]


@click.group("capacity", cls=WorkloadGroup, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Show whether the hosts keep the IPUs busy: ipulaunch capacity imagenet --pod 64 --dataset-path D

    Of the chain disk, decoding, host memory, host link, IPUs it shows each rate and where the number comes from, the
    slowest link, epochs per hour, energy and memory, and what would help.
    """


def _form_option(workload: str) -> List[Decorator]:
    forms = FORMS.get(workload)
    if not forms:
        return []
    about = f"How the samples are stored, where the set is not here to look at. Default: {next(iter(forms))}."
    return [click.option("--form", type=click.Choice(list(forms)), help=about)]


def _with_options(workload: str) -> Callable[[Any], Any]:
    return lambda function: decorate(function, [*_RATES, *_form_option(workload), *_OUTPUT])


@command.for_each_workload
def _capacity(workload: str) -> click.Command:
    @workload_command(workload, f"Show whether the hosts keep the IPUs busy with {workload}.")
    @where_options
    @_with_options(workload)
    @settings_options(workload)
    def capacity(**values: Any) -> None:
        as_json, svg, form = values.pop("as_json"), values.pop("svg"), values.pop("form", None)
        rates = GivenRates(**{name: values.pop(name) for name in GivenRates._fields})
        engine = choose_engine(engine_from(values), dry_run=True)
        resolved = settings_from(workload, values, on_cpus=engine.is_rehearsal)
        options = launch_options_from(values)
        solution = plan_workload(resolved, options, engine, unnamed=hosts_of_pod)
        settings, plan = resolved.settings, solution.plan
        inputs = known_inputs(workload, settings, plan, is_rehearsal=engine.is_rehearsal, form=form or "")
        inputs = with_given(inputs, rates)
        found = capacity_of(settings, plan, inputs, limits_of(options, plan))
        print_capacity(found, solution.messages, as_json=as_json, svg=svg)

    with_help(capacity, _HELP)
    return capacity
