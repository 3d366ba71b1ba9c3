from __future__ import annotations

import pytest

from ipulaunch.configs.pods import HostEntry, PodEntry, read_catalogue

CATALOGUE = read_catalogue()


@pytest.mark.parametrize(
    ("size", "machines", "ilds", "hosts", "max_hosts"),
    [
        (4, 1, 1, 1, 1),
        (8, 2, 1, 1, 1),
        (16, 4, 1, 1, 1),
        (32, 8, 1, 1, 2),
        (64, 16, 1, 1, 4),
        (128, 32, 2, 2, 8),
        (256, 64, 4, 4, 16),
    ],
)
@pytest.mark.parametrize(("prefix", "family"), [("pod", "IPU-POD"), ("bow-pod", "Bow Pod")])
def test_system_is_the_published_one(
    prefix: str, family: str, size: int, machines: int, ilds: int, hosts: int, max_hosts: int
) -> None:
    assert CATALOGUE.pods[f"{prefix}{size}"] == PodEntry(family, size, machines, ilds, hosts, max_hosts)


def test_catalogue_has_seven_sizes_of_two_families() -> None:
    assert len(CATALOGUE.pods) == 14


@pytest.mark.parametrize("name", CATALOGUE.pods)
def test_numbers_of_a_system_fit_together(name: str) -> None:
    pod = CATALOGUE.pods[name]
    assert pod.machines * 4 == pod.ipus
    assert pod.ilds == max(1, pod.ipus // 64)
    assert pod.hosts % pod.ilds == 0
    assert pod.hosts <= pod.max_hosts
    assert name.endswith(f"pod{pod.ipus}")


def test_reference_host_has_eight_nodes_of_sixteen_cores() -> None:
    assert CATALOGUE.reference_host == HostEntry(numa_nodes=8, cores_per_node=16, threads_per_core=2)
