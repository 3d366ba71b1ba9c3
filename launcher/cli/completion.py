"""The values that a shell offers for options and arguments, looked up only when it asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import click

from ipulaunch.configs.errors import IpulaunchError
from ipulaunch.configs.settings.tree import assign
from ipulaunch.configs.settings.workloads import presets, resolve, schema_of


def pods(ctx: click.Context, param: click.Parameter, incomplete: str) -> List[str]:
    """The sizes and the names of the PODs."""
    from ipulaunch.configs.pods import read_catalogue

    catalogue = read_catalogue().pods
    sizes = sorted({entry.ipus for entry in catalogue.values()})
    return _beginning([*map(str, sizes), *catalogue], incomplete)


def presets_of_workload(ctx: click.Context, param: click.Parameter, incomplete: str) -> List[str]:
    """The published configurations of the command's workload."""
    return _beginning(list(presets(str(ctx.command.name))), incomplete)


def sites(ctx: click.Context, param: click.Parameter, incomplete: str) -> List[str]:
    """The sites that come with the package; files are completed by the shell."""
    from ipulaunch.configs.sites import shipped_sites

    return _beginning(list(shipped_sites()), incomplete)


def setting_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> List[str]:
    """The names of all settings of the command's workload, each ready for its value."""
    from ipulaunch.configs.settings.schema import leaves

    return _beginning([f"{leaf.key}=" for leaf in leaves(schema_of(str(ctx.command.name)))], incomplete)


def layers(ctx: click.Context, param: click.Parameter, incomplete: str) -> List[str]:
    """The layers of the network that the words so far choose, in its order."""
    from ipulaunch.topology.networks import network_of

    workload, model = str(ctx.command.name), ctx.params.get("model__name")
    chosen = [assign("model.name", model, "--model")] if model else []
    try:
        settings = resolve(workload, rehearsal=False, config=ctx.params.get("config"), overrides=chosen).settings
        return _beginning([layer.name for layer in network_of(settings).layers], incomplete)
    except IpulaunchError:  # the command itself says what is wrong
        return []


def run_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> List[str]:
    """The names of the runs here, the newest first, and the paths of those elsewhere."""
    from ipulaunch.configs.runs.directory import RUNS
    from ipulaunch.launcher.launch.earlier_runs import all_runs
    from ipulaunch.launcher.launch.remembered import remembered_runs

    given: Any = ctx.params.get("runs_dir") or RUNS
    try:
        return _beginning([*(path.name for path in all_runs(Path(given))), *map(str, remembered_runs())], incomplete)
    except IpulaunchError:
        return []


def _beginning(values: List[str], incomplete: str) -> List[str]:
    return [value for value in values if value.startswith(incomplete)]
