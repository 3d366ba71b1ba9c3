"""Pipeline splits whose fullest stage needs as little memory as possible."""

from __future__ import annotations

import dataclasses
import math
from typing import List, NamedTuple, Tuple

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.capacity.memory import TRAINING, IpuMemory, Stage, StageMemory
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import cuts_for
from ipulaunch.topology.planning.batch import Batch

_Cuts = Tuple[float, float, Tuple[int, ...]]  # bytes of the fullest stage, of all stages, the cuts


class MemorySplits(NamedTuple):
    """A division into stages: the first layer of each but the first, and the memory of the stages."""

    splits: Tuple[str, ...]
    memory: Tuple[IpuMemory, ...]

    @property
    def balance(self) -> float:
        """The mean stage as a part of the fullest."""
        sizes = [each.bytes.high for each in self.memory]
        return sum(sizes) / len(sizes) / max(sizes)


def with_splits(settings: WorkloadSettings, splits: Tuple[str, ...]) -> WorkloadSettings:
    """The settings with these splits, a stage on each IPU, and recomputation, without which stages keep far more."""
    pipeline = dataclasses.replace(settings.pipeline, splits=splits, device_mapping=())
    launch = dataclasses.replace(settings.launch, ipus_per_replica=None)
    device = dataclasses.replace(settings.device, recomputation=True)
    return dataclasses.replace(settings, pipeline=pipeline, launch=launch, device=device)


def split_by_memory(settings: WorkloadSettings, stages: int, batch: Batch) -> MemorySplits:
    """The splits for training with recomputation; how much a stage keeps also depends on its place."""
    network = network_of(settings)
    points = cuts_for(network, stages)
    settings = with_splits(settings, points[: stages - 1])
    model = StageMemory(settings, batch, network)
    pieces = model.stages(points)

    def stage(number: int, start: int, end: int) -> Stage:
        layers = tuple(layer for piece in pieces[start:end] for layer in piece.layers)
        return Stage(number, layers, sum(piece.parameters for piece in pieces[start:end]))

    def memory(found: Stage) -> IpuMemory:
        return model.of_ipu(found.number, [found], stages, TRAINING)

    none: _Cuts = (math.inf, math.inf, ())
    best: List[_Cuts] = [(0, 0, ())] + [none] * len(pieces)  # of the first pieces, in as many stages as there are yet
    for number in range(stages):
        following = [none] * len(best)
        for start, (largest, together, cuts) in enumerate(best):
            for end in range(start + 1, len(best)) if largest < math.inf else ():
                size = memory(stage(number, start, end)).bytes.high
                following[end] = min(following[end], (max(largest, size), together + size, (*cuts, end)))
        best = following
    edges = (0, *best[-1][2])
    found = tuple(memory(stage(n, start, end)) for n, (start, end) in enumerate(zip(edges, edges[1:])))
    return MemorySplits(tuple(points[end - 1] for end in edges[1:-1]), found)
