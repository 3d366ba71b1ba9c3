from __future__ import annotations

from typing import Callable, Optional, Sequence, Tuple

import pytest

from ipulaunch.configs.pods import Catalogue, read_catalogue
from ipulaunch.topology.machines.hosts import Host, NumaNode, reference
from ipulaunch.topology.machines.pods import of_size
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.topology.planning.solver import Request, solve


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return read_catalogue()


@pytest.fixture(scope="session")
def reference_hosts(catalogue: Catalogue) -> Callable[[int], Tuple[Host, ...]]:
    """So many hosts of the catalogue's layout, named h0, h1, ..."""
    return lambda count: tuple(reference(f"h{i}", catalogue.reference_host, "catalogue") for i in range(count))


@pytest.fixture(scope="session")
def make_nodes() -> Callable[..., Tuple[NumaNode, ...]]:
    """NUMA nodes of so many cores each; second threads are numbered after all first ones."""

    def make(sizes: Sequence[int], threads: int = 1) -> Tuple[NumaNode, ...]:
        total, nodes, first = sum(sizes), [], 0
        for index, size in enumerate(sizes):
            cores = (tuple(core + thread * total for thread in range(threads)) for core in range(first, first + size))
            nodes.append(NumaNode(index, tuple(cores)))
            first += size
        return tuple(nodes)

    return make


@pytest.fixture(scope="session")
def make_plan(catalogue: Catalogue) -> Callable[..., Plan]:
    """A plan for given numbers, on hosts of the catalogue's layout."""

    def make(
        replicas: int,
        instances: int,
        ipus_per_replica: int = 1,
        *,
        hosts: Sequence[str] = ("localhost",),
        ilds: Optional[int] = None,
    ) -> Plan:
        request = Request(
            workload="cosmoflow",
            system=of_size(replicas * ipus_per_replica),
            hosts=tuple(reference(name, catalogue.reference_host, "given") for name in hosts),
            ipus_per_replica=ipus_per_replica,
            instances=instances,
            ilds=ilds,
        )
        return solve(request).plan

    return make
