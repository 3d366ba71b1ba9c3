"""A network as data: its layers in order, and what follows from them without TensorFlow."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import SettingsError

Shape = Tuple[int, ...]


class Layer(NamedTuple):
    """One layer: what it does, to which layers' outputs, and how."""

    name: str
    kind: str
    inputs: Tuple[str, ...]
    options: Mapping[str, Any]


class Network(NamedTuple):
    """Layers, each after those it reads; the first is the input, the last the output."""

    name: str
    layers: Tuple[Layer, ...]

    @property
    def drops_units(self) -> bool:
        """Whether training drops parts of it at random."""
        return any(layer.kind == "dropout" and layer.options["rate"] for layer in self.layers)


class Cost(NamedTuple):
    """The cost of a layer or a stage."""

    parameters: int  # with the moving statistics of batch norms
    activations: int  # numbers in its output
    flops: int


def shapes(network: Network) -> Dict[str, Shape]:
    """The shape of every layer's output for one sample; refuses a network in which a layer's output is empty."""
    found, small = _follow(network, network.layers[0].options["shape"])
    if small is not None:
        window, left = small.options["window"], found[small.inputs[0]][:-1]
        raise SettingsError(
            f"{small.name} of {network.name} takes windows of {_by(window for _ in left)} from {_by(left)}",
            hint=f"use --side {_smallest_side(network)} or more, or fewer layers: see --n-conv-layers and --model",
        )
    return found


def costs(network: Network) -> Dict[str, Cost]:
    """The costs of every layer for one sample, forward; a multiplication and its addition are 2 flops."""
    found = shapes(network)
    return {
        layer.name: Cost(
            parameters=_parameters(layer, found),
            activations=math.prod(found[layer.name]),
            flops=_flops(layer, found),
        )
        for layer in network.layers
    }


def _follow(network: Network, shape: Shape) -> Tuple[Dict[str, Shape], Optional[Layer]]:
    """The shapes that follow from the input's, and the first layer with an empty output, if there is one."""
    found: Dict[str, Shape] = {network.layers[0].name: tuple(shape)}
    for layer in network.layers[1:]:
        found[layer.name] = _SHAPES.get(layer.kind, _kept)(layer, found[layer.inputs[0]])
        if min(found[layer.name]) < 1:
            return found, layer
    return found, None


def _smallest_side(network: Network) -> int:
    *sides, channels = network.layers[0].options["shape"]

    def fits(side: int) -> bool:
        return _follow(network, (*(side for _ in sides), channels))[1] is None

    above = 1
    while not fits(above):
        above *= 2
    below = above // 2
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if fits(middle) else (middle, above)
    return above


def _by(sizes: Any) -> str:
    return " x ".join(map(str, sizes))


def _kept(layer: Layer, shape: Shape) -> Shape:
    return shape


def _windows(layer: Layer, shape: Shape) -> Shape:
    """How often a window fits, along each side; same padding fills the edges."""
    window, strides = layer.options["window"], layer.options["strides"]
    missing = 0 if layer.options["padding"] == "same" else window - 1
    sides = (-(-(side - missing) // strides) for side in shape[:-1])
    return (*sides, layer.options.get("filters", shape[-1]))


def _padded(layer: Layer, shape: Shape) -> Shape:
    return (*(side + 2 * layer.options["width"] for side in shape[:-1]), shape[-1])


def _downsampled(layer: Layer, shape: Shape) -> Shape:
    return (*(-(-side // 2) for side in shape[:-1]), 2 * shape[-1])


_SHAPES: Dict[str, Callable[[Layer, Shape], Shape]] = {
    "conv": _windows,
    "max_pool": _windows,
    "average_pool": _windows,
    "pad": _padded,
    "downsample": _downsampled,
    "global_average_pool": lambda layer, shape: shape[-1:],
    "flatten": lambda layer, shape: (math.prod(shape),),
    "dense": lambda layer, shape: (layer.options["units"],),
}


def _weights(layer: Layer, found: Mapping[str, Shape]) -> int:
    """The number of weights that multiply inputs, without biases."""
    read = found[layer.inputs[0]]
    if layer.kind == "conv":
        return int(layer.options["window"] ** (len(read) - 1) * read[-1] * layer.options["filters"])
    return int(read[-1] * layer.options["units"])


def _parameters(layer: Layer, found: Mapping[str, Shape]) -> int:
    outputs = found[layer.name][-1]
    if layer.kind in ("conv", "dense"):
        return _weights(layer, found) + (outputs if layer.options["bias"] else 0)
    return {"batch_norm": 4, "group_norm": 2}.get(layer.kind, 0) * outputs


def _flops(layer: Layer, found: Mapping[str, Shape]) -> int:
    shape = found[layer.name]
    outputs = math.prod(shape)
    if layer.kind in ("conv", "dense"):
        after = bool(layer.options["bias"]) + bool(layer.options.get("activation"))
        return 2 * _weights(layer, found) * math.prod(shape[:-1]) + after * outputs
    if layer.kind in ("max_pool", "average_pool"):
        return int(outputs * layer.options["window"] ** (len(shape) - 1))
    if layer.kind == "global_average_pool":
        return math.prod(found[layer.inputs[0]])
    return _PER_OUTPUT[layer.kind] * outputs


# Operations for each number of the output. Norms: mean, variance, centred, scaled, times gamma, plus beta.
_PER_OUTPUT = {
    "input": 0,
    "normalise": 2,
    "density": 2,
    "pad": 0,
    "downsample": 0,
    "batch_norm": 7,
    "group_norm": 7,
    "activation": 1,
    "add": 1,
    "flatten": 0,
    "dropout": 2,
    "scale": 1,
}
