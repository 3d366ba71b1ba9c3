"""The tensors of a network on an IPU: how large they are, which the backward pass needs, how many live at once."""

from __future__ import annotations

import math
from typing import Dict, Iterable, Mapping, NamedTuple, Sequence, Set

from ipulaunch.topology.networks.network import Layer, Network, Shape, costs, shapes

_SENT_BYTES = {"uint8": 1, "int16": 2, "float32": 4}  # of a number of a sample, as the host sends it
_VIEWS = ("flatten", "pad")  # have no memory of their own
_IN_PLACE = ("activation", "add", "batch_norm", "dropout", "group_norm", "scale")  # may overwrite their input
# What the gradient of a layer is computed from.
_NEED_INPUT = ("batch_norm", "conv", "dense", "group_norm", "max_pool")
_NEED_OUTPUT = ("activation", "max_pool")


class Tensors(NamedTuple):
    """The tensors of a network, by the name of the layer that makes them; sizes are bytes of one sample."""

    layers: Mapping[str, Layer]
    shapes: Mapping[str, Shape]
    learnt: Set[str]  # layers with weights in or before them: only these have gradients
    compute_bytes: int  # of a number in computation

    def owner(self, name: str) -> str:
        """The layer whose memory holds the output of this one."""
        while self.layers[name].kind in _VIEWS:
            name = self.layers[name].inputs[0]
        return name

    def size(self, name: str) -> int:
        layer = self.layers[name]
        is_input = layer.kind == "input"
        return math.prod(self.shapes[name]) * (_SENT_BYTES[layer.options["dtype"]] if is_input else self.compute_bytes)

    def kept(self, stage: Sequence[Layer]) -> int:
        """What the backward pass of a stage needs of its forward pass."""
        return sum(map(self.size, self._first_needs(stage)))

    def backward_peak(self, stage: Sequence[Layer]) -> int:
        """The most that lives at once in the backward pass: what is still needed, and the gradients under way."""
        first_needs = self._first_needs(stage)
        needed = sum(map(self.size, first_needs))
        last = self.owner(stage[-1].name)
        gradients = {last: self.size(last)}
        peak = needed + gradients[last]
        for place, layer in reversed(list(enumerate(stage))):
            own = self.owner(layer.name)
            found = self._sizes(name for name in layer.inputs if name in self.learnt)
            during = {**gradients, **found}
            if layer.kind in _IN_PLACE:
                during.pop(own, None)
            peak = max(peak, needed + sum(during.values()))
            if layer.kind not in _VIEWS:
                gradients.pop(own, None)
            gradients.update(found)
            needed -= sum(self.size(name) for name, first in first_needs.items() if first == place)
        return peak

    def forward_peak(self, stage: Sequence[Layer]) -> int:
        """The most that lives at once if nothing is kept for a backward pass."""
        last_reads = {self.owner(name): place for place, layer in enumerate(stage) for name in layer.inputs}
        alive = self._sizes(stage[0].inputs)
        peak = sum(alive.values())
        for place, layer in enumerate(stage):
            if layer.kind in _VIEWS:
                continue
            ends = [name for name in map(self.owner, layer.inputs) if last_reads[name] == place]
            during = {**alive, layer.name: self.size(layer.name)}
            if layer.kind in _IN_PLACE and ends:
                during.pop(ends[0], None)
            peak = max(peak, sum(during.values()))
            alive = {name: size for name, size in during.items() if last_reads.get(name, place) > place}
            alive[layer.name] = self.size(layer.name)
        return peak

    def operands(self, stage: Sequence[Layer], partial_bytes: int) -> int:
        """The input of its largest convolution or dense layer, and the partial sums of its output."""
        sizes = (
            self.size(self.owner(layer.inputs[0])) + math.prod(self.shapes[layer.name]) * partial_bytes
            for layer in stage
            if layer.kind in ("conv", "dense")
        )
        return max(sizes, default=0)

    def _sizes(self, names: Iterable[str]) -> Dict[str, int]:
        return {owner: self.size(owner) for owner in map(self.owner, names)}

    def _first_needs(self, stage: Sequence[Layer]) -> Dict[str, int]:
        """The tensors that the backward pass needs, each with the place of the first layer that needs it."""
        found: Dict[str, int] = {}
        for place, layer in enumerate(stage):
            if layer.name not in self.learnt:
                continue
            if layer.kind in _NEED_INPUT:
                found.setdefault(self.owner(layer.inputs[0]), place)
            if layer.kind in _NEED_OUTPUT or layer.options.get("activation"):
                found.setdefault(self.owner(layer.name), place)
        return found


def tensors_of(network: Network, compute_bytes: int) -> Tensors:
    """The tensors of a network whose layers compute with so many bytes."""
    learnt: Set[str] = set()
    for layer, cost in zip(network.layers, costs(network).values()):
        if cost.parameters or any(name in learnt for name in layer.inputs):
            learnt.add(layer.name)
    return Tensors({layer.name: layer for layer in network.layers}, shapes(network), learnt, compute_bytes)


def sent_bytes(network: Network) -> int:
    """What the host sends of one sample."""
    source = network.layers[0]
    return int(math.prod(source.options["shape"])) * _SENT_BYTES[source.options["dtype"]]
