"""Dividing the cores of a host among its instances."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple, TypeVar

from ipulaunch.topology.machines import cpulist
from ipulaunch.topology.machines.hosts import Core, NumaNode

T = TypeVar("T")


class Share(NamedTuple):
    """The part of a host that one instance is bound to."""

    numa_nodes: Tuple[int, ...]
    cores: int
    cpus: str  # as the kernel writes it: all hardware threads of those cores


def divide(nodes: Sequence[NumaNode], instances: int) -> List[Share]:
    """One share per instance, in order, crossing a NUMA node only where the counts require it."""
    per_node = instances // len(nodes)
    if instances % len(nodes) == 0 and per_node <= min(len(node.cores) for node in nodes):
        parts = [[(node.number, core) for core in part] for node in nodes for part in _split(node.cores, per_node)]
    elif len(nodes) % instances == 0:
        parts = [[(node.number, core) for node in group for core in node.cores] for group in _split(nodes, instances)]
    else:
        every = [(node.number, core) for node in nodes for core in node.cores]
        parts = [list(part) for part in _split(every, instances)]
    return [_share(part) for part in parts]


def oversubscribe(nodes: Sequence[NumaNode], instances: int) -> List[Share]:
    """More instances than cores: each gets one core, in turn."""
    cores = [(node.number, core) for node in nodes for core in node.cores]
    return [_share([cores[index * len(cores) // instances]]) for index in range(instances)]


def _share(part: Sequence[Tuple[int, Core]]) -> Share:
    nodes = tuple(sorted({index for index, _ in part}))
    return Share(nodes, len(part), cpulist.render(thread for _, core in part for thread in core))


def _split(items: Sequence[T], parts: int) -> List[Sequence[T]]:
    """Contiguous parts whose sizes differ by at most one, the larger ones first."""
    size, extra = divmod(len(items), parts)
    bounds = [index * size + min(index, extra) for index in range(parts + 1)]
    return [items[low:high] for low, high in zip(bounds, bounds[1:])]
