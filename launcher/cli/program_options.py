"""What our own workloads say in their settings, as options for programs of the user."""

from __future__ import annotations

from typing import Any, Dict

import click

from ipulaunch.configs.settings.sections import Launch
from ipulaunch.launcher.cli.options import decorate


def program_options(command: Any) -> Any:
    """What our own workloads say in their settings, for programs we know nothing of."""
    options = [
        click.option("--ipus-per-replica", type=click.IntRange(1), help="IPUs that one replica uses. Default: 1."),
        click.option(
            "--num-replicas", type=click.IntRange(1), help="Replicas in all. Default: as many as the IPUs allow."
        ),
        click.option(
            "--num-instances", type=click.IntRange(1), help="Host processes in all. Default: one per NUMA node."
        ),
        click.option(
            "--io-bound", is_flag=True, help="The host's input work limits the speed: start as many instances as fit."
        ),
        click.option(
            "--min-cores-per-instance",
            type=click.IntRange(1),
            default=1,
            help="Cores that each instance keeps, with --io-bound.",
        ),
    ]
    return decorate(command, options)


def program_settings(values: Dict[str, Any]) -> Launch:
    """What these options say; takes them out of `values`."""
    names = ("ipus_per_replica", "num_replicas", "num_instances", "io_bound", "min_cores_per_instance")
    return Launch(**{name: values.pop(name) for name in names})
