"""Splits into stages that are even by what the user chooses: by one of their costs, or by memory."""

from __future__ import annotations

from typing import NamedTuple, Tuple

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.capacity.memory import IpuMemory
from ipulaunch.topology.capacity.memory_splits import split_by_memory
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.network import Cost
from ipulaunch.topology.networks.splits import stage_costs, suggest_splits
from ipulaunch.topology.planning.batch import Batch

MEMORY = "memory"
MEASURES = (*Cost._fields[::-1], MEMORY)  # what the stages can have equal shares of


class EvenSplits(NamedTuple):
    """A division into stages: the first layer of each but the first, and what the stages cost."""

    splits: Tuple[str, ...]
    costs: Tuple[Cost, ...]  # of a micro-batch, forward and backward
    balance: float  # the mean stage as a part of the largest; 1.0 is even
    sizes: Tuple[float, ...]  # of what should be even
    memory: Tuple[IpuMemory, ...] = ()  # of splits by memory: with recomputation


def even_splits(settings: WorkloadSettings, stages: int, by: str) -> EvenSplits:
    """The most even splits of the network of these settings."""
    network, micro_size = network_of(settings), settings.training.micro_batch_size
    if by != MEMORY:
        found = suggest_splits(network, stages, micro_size, by)
        return EvenSplits(*found, sizes=tuple(getattr(cost, by) for cost in found.costs))
    # Of several replicas, which need a buffer for the sum of their gradients, and of a turn of the schedule.
    splits, memory = even = split_by_memory(settings, stages, Batch(micro_size, 2, 2 * stages))
    sizes = tuple(each.bytes.high for each in memory)
    return EvenSplits(splits, stage_costs(network, splits, micro_size), even.balance, sizes, memory)
