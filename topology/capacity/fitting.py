"""What would make a model fit that does not: each change with the memory that it leads to."""

from __future__ import annotations

import dataclasses
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import IpulaunchError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.capacity.memory import FITS, TRAINING, IpuMemory, fullest, memory_of
from ipulaunch.topology.capacity.memory_splits import split_by_memory, with_splits
from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.rules import IPUS_PER_REPLICA


class Change(NamedTuple):
    """Options to add, and what the fullest IPU needs with them."""

    options: str
    memory: IpuMemory


def changes(settings: WorkloadSettings, batch: Batch) -> List[Change]:
    """Changes that make it fit, cheapest first; where none does alone, those that come closest."""
    found = list(_changes(settings, batch))
    fitting = [change for change in found if change.memory.verdict == FITS]
    return fitting or sorted(found, key=lambda change: change.memory.bytes.high)[:2]


def _changes(settings: WorkloadSettings, batch: Batch) -> Iterator[Change]:
    before = fullest(memory_of(settings, batch)).bytes.high
    for options, changed in _switches(settings):
        memory = fullest(memory_of(changed, batch))
        if memory.bytes.high < before:
            yield Change(options, memory)
    yield from _smaller(settings, batch)
    if not settings.pipeline.splits and settings.training.training:
        yield from _stages(settings, batch)


def _switches(settings: WorkloadSettings) -> Iterator[Tuple[str, WorkloadSettings]]:
    device, training = settings.device, settings.training
    if settings.pipeline.splits and not device.recomputation:
        device = dataclasses.replace(device, recomputation=True)
        yield "--recomputation", dataclasses.replace(settings, device=device)
    if not settings.device.optimizer_state_offloading and training.training:
        device = dataclasses.replace(settings.device, optimizer_state_offloading=True)
        yield "--optimizer-state-offloading", dataclasses.replace(settings, device=device)
    if training.precision != "16.16":
        training = dataclasses.replace(training, precision="16.16")
        yield "--precision 16.16", dataclasses.replace(settings, training=training)


def _smaller(settings: WorkloadSettings, batch: Batch) -> Iterator[Change]:
    """The largest micro-batch that fits, of the program that needs most."""
    training = settings.training
    if fullest(memory_of(settings, batch)).program == TRAINING:
        option, size = "--micro-batch-size", batch.micro_size
    else:
        option, size = "--validation-micro-batch-size", training.validation_micro_batch_size or batch.micro_size

    def memory(size: int) -> IpuMemory:
        if option == "--micro-batch-size":
            return fullest(memory_of(settings, batch._replace(micro_size=size)))
        changed = dataclasses.replace(training, validation_micro_batch_size=size)
        return fullest(memory_of(dataclasses.replace(settings, training=changed), batch))

    best = _largest(size, lambda some: memory(some).verdict == FITS)
    if best is not None:
        yield Change(f"{option} {best}", memory(best))


def _largest(below: int, holds: Callable[[int], bool]) -> Optional[int]:
    """The largest number from 1 on for which this holds, as it does for all smaller ones, if there is any."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low or None


def _stages(settings: WorkloadSettings, batch: Batch) -> Iterator[Change]:
    """The fewest pipeline stages that fit."""
    for stages in IPUS_PER_REPLICA[1:]:
        try:
            splits = split_by_memory(settings, stages, batch).splits
            memory = fullest(memory_of(with_splits(settings, splits), batch))
        except IpulaunchError:  # the network has no so many stages, or its settings none at all
            return
        if memory.verdict == FITS:
            words = " ".join(f"--pipeline-splits {name}" for name in splits)
            yield Change(f"--recomputation {words}", memory)
            return
