"""The catalogue of systems, as shipped in pods.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, NamedTuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.schema import Settings, build, setting
from ipulaunch.configs.settings.tree import Given, Tree, read_yaml


class PodEntry(Settings):
    """One system of the catalogue."""

    ipus: int = setting(0, "IPUs", at_least=1)
    hosts: int = setting(1, "hosts when none are named", at_least=1)
    max_hosts: int = setting(1, "hosts the build guides allow", at_least=1)


class HostEntry(Settings):
    """The host assumed where none can be looked at."""

    numa_nodes: int = setting(1, "NUMA nodes", at_least=1)
    cores_per_node: int = setting(1, "physical cores of a NUMA node", at_least=1)
    threads_per_core: int = setting(1, "hardware threads of a core", at_least=1)


class Catalogue(NamedTuple):
    """All systems by name, and the reference host."""

    reference_host: HostEntry
    pods: Dict[str, PodEntry]


def read_catalogue() -> Catalogue:
    """The catalogue shipped with the package."""
    tree = read_yaml(Path(__file__).with_name("pods.yaml"), shown_as="configs/pods.yaml")
    entries = _section(tree, "pods")
    pods = {name.replace("_", "-"): build(PodEntry, _section(entries, name), {}) for name in entries}
    return Catalogue(build(HostEntry, _section(tree, "reference_host"), {}), pods)


def _section(tree: Tree, name: str) -> Tree:
    value = tree.get(name, {})
    if isinstance(value, Given):
        raise SettingsError(f"{value.origin}: {name} is not a section")
    return value
