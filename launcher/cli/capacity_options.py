"""The options of `ipulaunch capacity` beside those of a plan."""

from __future__ import annotations

from typing import Any, Dict, List

import click

from ipulaunch.launcher.cli.options import PATH, Decorator, decorate
from ipulaunch.topology.capacity.forms import FORMS
from ipulaunch.topology.capacity.given_rates import GivenRates


def _rate(flag: str, metavar: str, about: str) -> Decorator:
    return click.option(flag, type=click.FloatRange(0, min_open=True), metavar=metavar, help=about)


_RATES: List[Decorator] = [
    _rate("--ipu-rate", "SAMPLES/S", "Samples/s that one IPU takes. Default: published for ResNet-50, else not known."),
    _rate("--decode-rate", "SAMPLES/S", "Samples/s that one core unpacks or decodes. Default: measured or assumed."),
    _rate("--disk-rate", "GB/S", "Gigabytes/s that one host reads. Default: measured or assumed."),
    _rate("--link", "GBIT", "Gigabits/s between one host and its IPUs. Default: 100."),
]
_OUTPUT: List[Decorator] = [
    click.option(
        "--measure/--no-measure",
        default=True,
        show_default=True,
        help="Measure disk, preparation and memory here in some seconds; in a rehearsal, the computation too.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print everything as JSON."),
    click.option("--svg", type=PATH, metavar="FILE", help="Also draw the chain into this file."),
]


def _form_option(workload: str) -> List[Decorator]:
    forms = FORMS.get(workload)
    if not forms:
        return []
    about = f"How the samples are stored, where the set is not here to look at. Default: {next(iter(forms))}."
    return [click.option("--form", type=click.Choice(list(forms)), help=about)]


def capacity_options(workload: str) -> Decorator:
    """The options of rates, of the form of the set, and of the output."""
    return lambda function: decorate(function, [*_RATES, *_form_option(workload), *_OUTPUT])


def rates_from(values: Dict[str, Any]) -> GivenRates:
    """The rates that the user gives; takes them out of `values`."""
    return GivenRates(**{name: values.pop(name) for name in GivenRates._fields})
