"""The workloads that are shipped, and how their settings come together."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from ipulaunch.configs.cosmoflow import CosmoflowSettings
from ipulaunch.configs.errors import UsageError, near_miss
from ipulaunch.configs.schema import build, check
from ipulaunch.configs.tree import Given, Tree, from_environment, merge, read_yaml

# Name of the workload, its schema, and the line shown in the help.
WORKLOADS: Dict[str, type] = {"cosmoflow": CosmoflowSettings}
SUMMARIES = {"cosmoflow": "Train CosmoFlow: cosmological parameters from 3-D matter distributions."}


class Resolved(NamedTuple):
    """The settings of one run, and for every key the place its value came from."""

    workload: str
    settings: Any
    origins: Mapping[str, str]
    rehearsal: bool


def schema_of(workload: str) -> type:
    """The settings dataclass of a workload."""
    if workload not in WORKLOADS:
        raise UsageError(f"there is no workload {workload}", hint=near_miss(workload, WORKLOADS))
    return WORKLOADS[workload]


def resolve(
    workload: str,
    *,
    rehearsal: bool,
    config_path: Optional[Path] = None,
    environ: Optional[Mapping[str, str]] = None,
    overrides: Sequence[Tree] = (),
) -> Resolved:
    """The settings in force: shipped file < your file < environment < command line.

    In a rehearsal each file's own `rehearsal:` section is laid over it.
    """
    schema = schema_of(workload)
    shipped = Path(__file__).with_name(f"{workload}.yaml")
    layers = _layers(read_yaml(shipped, shown_as=f"configs/{shipped.name}"), rehearsal)
    if config_path is not None:
        yours = read_yaml(config_path)
        for layer in _layers(yours, rehearsal=True):  # a wrong line shows at once, whatever hides it now
            check(schema, layer)
        layers += _layers(yours, rehearsal)
    tree = merge(*layers, from_environment(environ or {}), *overrides)
    origins: Dict[str, str] = {}
    return Resolved(workload, build(schema, tree, origins), origins, rehearsal)


def _layers(tree: Tree, rehearsal: bool) -> list[Tree]:
    base = {key: value for key, value in tree.items() if key != "rehearsal"}
    overlay = tree.get("rehearsal")
    if isinstance(overlay, Given):
        overlay = {"rehearsal": overlay}  # refused by the schema, with its line
    return [base, overlay] if rehearsal and overlay else [base]
