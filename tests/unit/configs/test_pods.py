from __future__ import annotations

import pytest

from ipulaunch.configs.pods import HostEntry, PodEntry, read_catalogue
from ipulaunch.topology.machines.pods import usual_ilds

CATALOGUE = read_catalogue()


@pytest.mark.parametrize(
    ("size", "hosts", "max_hosts"),
    [(4, 1, 1), (8, 1, 1), (16, 1, 1), (32, 1, 2), (64, 1, 4), (128, 2, 8), (256, 4, 16)],
)
@pytest.mark.parametrize("prefix", ["pod", "bow-pod"])
def test_system_is_the_published_one(prefix: str, size: int, hosts: int, max_hosts: int) -> None:
    assert CATALOGUE.pods[f"{prefix}{size}"] == PodEntry(size, hosts, max_hosts)


def test_catalogue_has_seven_sizes_of_two_families() -> None:
    assert len(CATALOGUE.pods) == 14


@pytest.mark.parametrize("name", CATALOGUE.pods)
def test_numbers_of_a_system_fit_together(name: str) -> None:
    pod = CATALOGUE.pods[name]
    assert pod.hosts % usual_ilds(pod.ipus) == 0
    assert pod.hosts <= pod.max_hosts
    assert name.endswith(f"pod{pod.ipus}")


def test_reference_host_has_eight_nodes_of_sixteen_cores() -> None:
    assert CATALOGUE.reference_host == HostEntry(numa_nodes=8, cores_per_node=16, threads_per_core=2)
