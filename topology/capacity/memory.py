"""Whether a model fits the memory of its IPUs: an estimate from the network, with its uncertainty.

The tensors are computed, and counted in full. Two parts are not known before Poplar has compiled the program, and are
ranges: the working memory of convolutions, and code. docs/capacity.md has the sources and the calibration.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.capacity.ranges import Range, exactly, total
from ipulaunch.topology.capacity.tensors import Tensors, tensors_of
from ipulaunch.topology.machines.published import IPU_MEMORY_BYTES, IPU_TILES
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.network import Layer, Network, costs
from ipulaunch.topology.networks.splits import stages_of
from ipulaunch.topology.planning.batch import Batch

FITS, UNCERTAIN, TOO_LARGE = "fits", "may not fit", "does not fit"
TRAINING, VALIDATION = "training", "validation"

# Code of vertices, exchanges and control, and what tiles lose because none is filled like another. Published programs
# bound it: see docs/capacity.md.
CODE_SHARE = Range(0.1, 0.25)
_DEFAULT_PROPORTION = 60.0  # per cent of a tile for the operands of convolutions; the default of Poplar's libraries
# Numbers that an optimizer keeps for each weight, without momentum.
_SLOTS = {"adadelta": 2, "adam": 2, "lars": 0, "rmsprop": 1, "sgd": 0}


class IpuMemory(NamedTuple):
    """What one IPU holds of one program, in bytes."""

    ipu: int
    stages: Tuple[int, ...]
    program: str  # TRAINING or VALIDATION, which are compiled and loaded apart
    parts: Dict[str, Range]
    limit: float

    @property
    def bytes(self) -> Range:
        return total(self.parts.values())

    @property
    def verdict(self) -> str:
        return verdict(self.bytes, self.limit)

    def as_data(self) -> Dict[str, Any]:
        """The estimate as plain data."""
        parts = {name: dataclasses.asdict(size) for name, size in self.parts.items()}
        needed = dataclasses.asdict(self.bytes)
        return {**self._asdict(), "parts": parts, "bytes": needed, "verdict": self.verdict}


class Stage(NamedTuple):
    """A stage of a pipeline: its place, its layers and its weights."""

    number: int
    layers: Sequence[Layer]
    parameters: int


def verdict(needed: Range, limit: float) -> str:
    """Whether something of uncertain size fits."""
    if needed.high <= limit:
        return FITS
    return UNCERTAIN if needed.low <= limit else TOO_LARGE


def memory_of(settings: WorkloadSettings, batch: Batch) -> Tuple[IpuMemory, ...]:
    """The memory of each IPU of a replica, for training and for validation as far as both are asked for."""
    model = StageMemory(settings, batch, network_of(settings))
    stages = model.stages(settings.pipeline.splits)
    mapping = settings.pipeline.device_mapping or range(len(stages))
    on_ipu: Dict[int, List[Stage]] = {}
    for ipu, stage in zip(mapping, stages):
        on_ipu.setdefault(ipu, []).append(stage)
    programs = {TRAINING: settings.training.training, VALIDATION: settings.training.validation}
    return tuple(
        model.of_ipu(ipu, held, len(stages), program)
        for program in (name for name, runs in programs.items() if runs)
        for ipu, held in sorted(on_ipu.items())
    )


def fullest(memory: Sequence[IpuMemory]) -> IpuMemory:
    """The IPU and the program that need most."""
    return max(memory, key=lambda each: each.bytes.high)


class StageMemory:
    """The memory that stages of a network need, with some settings."""

    def __init__(self, settings: WorkloadSettings, batch: Batch, network: Network) -> None:
        self.settings, self.batch, self.network = settings, batch, network
        precision = settings.training.precision
        self.weight_bytes = 4 if precision.endswith("32") else 2
        self.tensors: Tensors = tensors_of(network, 4 if precision.startswith("32") else 2)
        self.costs = costs(network)
        self.limit = IPU_MEMORY_BYTES * (1 - (settings.device.io_tiles or 0) / IPU_TILES)

    def stages(self, splits: Sequence[str]) -> List[Stage]:
        """The stages between these splits."""
        return [
            Stage(number, layers, sum(self.costs[layer.name].parameters for layer in layers))
            for number, layers in enumerate(stages_of(self.network, splits))
        ]

    def of_ipu(self, ipu: int, held: Sequence[Stage], stages: int, program: str) -> IpuMemory:
        """The memory of an IPU that holds these of so many stages."""
        return IpuMemory(
            ipu, tuple(each.number for each in held), program, self.parts(held, stages, program), self.limit
        )

    def parts(self, held: Sequence[Stage], stages: int, program: str) -> Dict[str, Range]:
        """What an IPU needs that holds these of so many stages."""
        weights = sum(stage.parameters for stage in held) * self.weight_bytes
        is_training = program == TRAINING
        micro_size = self._micro_size(is_training)
        parts = {"weights": exactly(weights)}
        if is_training:
            parts["gradients"] = exactly(weights + self._reduced_at_once(held))
            parts["optimizer"] = exactly(weights * self._slots())
        activations = self._activations_kept(held, stages) if is_training else self._activations_alive(held)
        parts["activations"] = exactly(micro_size * activations)
        parts["input"] = exactly(micro_size * self._input(held))
        parts["working memory"] = Range(0, min(self._most_operands(), micro_size * self._operands(held)))
        parts["code"] = CODE_SHARE.times(self.limit)
        return parts

    def _micro_size(self, is_training: bool) -> int:
        training = self.settings.training
        return self.batch.micro_size if is_training else training.validation_micro_batch_size or self.batch.micro_size

    def _slots(self) -> int:
        """Numbers on the IPU for each weight, for the optimizer alone."""
        optimizer = self.settings.optimizer
        if self.settings.device.optimizer_state_offloading:
            return 0
        return _SLOTS[optimizer.name] + bool(optimizer.momentum)

    def _reduced_at_once(self, held: Sequence[Stage]) -> int:
        """The buffer in which gradients are summed over replicas: at least the largest of them."""
        if self.batch.replicas == 1:
            return 0
        sizes = [self.costs[layer.name].parameters * self.weight_bytes for stage in held for layer in stage.layers]
        return min(sum(sizes), max(*sizes, self.settings.device.max_cross_replica_sum_buffer_size or 0))

    def _activations_kept(self, held: Sequence[Stage], stages: int) -> int:
        """What waits for its backward pass, and the most that one backward pass needs; of one sample."""
        recomputes = self.settings.device.recomputation
        waiting = 0
        for stage in held:
            under_way = self._under_way(stage.number, stages)
            kept = sum(map(self.tensors.size, self._entering(stage))) if recomputes else self.tensors.kept(stage.layers)
            waiting += kept * (under_way if recomputes else under_way - 1)
        return waiting + max(self.tensors.backward_peak(stage.layers) for stage in held)

    def _under_way(self, number: int, stages: int) -> int:
        """The micro-batches between the forward and the backward pass of a stage."""
        behind = stages - number - 1
        return {"Grouped": 2 * behind, "Interleaved": behind, "Sequential": 0}[self.settings.pipeline.schedule] + 1

    def _activations_alive(self, held: Sequence[Stage]) -> int:
        """The most that lives at once where nothing waits for a backward pass; of one sample."""
        return max(self.tensors.forward_peak(stage.layers) for stage in held)

    def _entering(self, stage: Stage) -> List[str]:
        """The tensors that a stage begins with."""
        first = stage.layers[0]
        return [self.tensors.owner(name) for name in first.inputs] or [first.name]

    def _input(self, held: Sequence[Stage]) -> int:
        """The buffer in which the next input arrives while one is computed with; of one sample."""
        return sum(map(self.tensors.size, self._entering(held[0])))

    def _operands(self, held: Sequence[Stage]) -> int:
        is_half = self.settings.device.half_partials and self.tensors.compute_bytes == 2
        return max(self.tensors.operands(stage.layers, 2 if is_half else 4) for stage in held)

    def _most_operands(self) -> float:
        proportion = max(self.settings.device.available_memory_proportion, default=_DEFAULT_PROPORTION)
        return min(1.0, proportion / 100) * self.limit
