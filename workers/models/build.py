"""From a network's description to a Keras model, whole or in stages."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from ipulaunch.topology.networks.network import Layer, Network, shapes
from ipulaunch.workers.models.half import Conv2DIn32Bits, Conv3DIn32Bits, DenseIn32Bits
from ipulaunch.workers.models.layers import CountsToDensity, Downsample, GroupNorm, Normalise, Scale

Dropout = Callable[[float, str], Any]

_keras = tf.keras.layers


def build_model(network: Network, dropout: Dropout, native_half: bool = True) -> tf.keras.Model:
    """The network in the precision of the global Keras policy; `dropout(rate, name)` makes the backend's layers.

    Without `native_half`, layers that a CPU computes slowly in 16 bits, or not at all, compute in 32 and store 16.
    """
    first = network.layers[0]
    inputs = tf.keras.Input(first.options["shape"], dtype=first.options["dtype"], name=first.name)
    outputs: Dict[str, Any] = {first.name: inputs}
    for layer, made in make_layers(network, dropout, native_half):
        read = [outputs[source] for source in layer.inputs]
        outputs[layer.name] = made(read if len(read) > 1 else read[0])
    return tf.keras.Model(inputs, outputs[network.layers[-1].name], name=network.name)


def make_layers(network: Network, dropout: Dropout, native_half: bool = True) -> Iterator[Tuple[Layer, Any]]:
    """The layers of the network behind its input, each with the Keras layer that does it."""
    found = shapes(network)
    for layer in network.layers[1:]:
        sides = len(found[layer.inputs[0]]) - 1
        if layer.kind == "dropout":
            yield layer, dropout(layer.options["rate"], layer.name)
        elif layer.kind in ("max_pool", "average_pool"):
            # On a CPU, TensorFlow 2.6 to 2.21 cannot pool volumes in 16 bits.
            yield layer, _pool(layer, sides, "float32" if sides == 3 and not native_half else None)
        elif layer.kind in _IN_32_BITS and not native_half and _computes_in_16_bits():
            yield layer, _IN_32_BITS[layer.kind](layer, sides)
        else:
            yield layer, _LAYERS[layer.kind](layer, sides)


def stage_models(model: tf.keras.Model, ends: Sequence[str]) -> List[tf.keras.Model]:
    """The model cut after these layers into models that share its layers: one after the other, they are the model.

    Each layer is called once more, on what its stage reads; its first call remains that of the whole model.
    """
    stages: List[tf.keras.Model] = []
    start = value = tf.keras.Input(model.input.shape[1:], dtype=model.input.dtype, name=f"{model.name}_stage0")
    values = {id(model.input): start}
    for layer in model.layers:
        if isinstance(layer, _keras.InputLayer):
            continue
        value = layer(tf.nest.map_structure(lambda tensor, now=values: now[id(tensor)], layer.get_input_at(0)))
        values[id(layer.get_output_at(0))] = value
        if layer.name in ends:
            stages.append(tf.keras.Model(start, value, name=start.name))
            start = tf.keras.Input(value.shape[1:], dtype=value.dtype, name=f"{model.name}_stage{len(stages)}")
            values = {id(layer.get_output_at(0)): start}
    return [*stages, tf.keras.Model(start, value, name=start.name)]


def _conv(layer: Layer, kind: Any) -> Any:
    options = layer.options
    return kind(
        options["filters"],
        options["window"],
        strides=options["strides"],
        padding=options["padding"],
        use_bias=options["bias"],
        kernel_initializer=options["initializer"],
        name=layer.name,
    )


def _dense(layer: Layer, kind: Any) -> Any:
    return kind(layer.options["units"], activation=layer.options["activation"], name=layer.name)


def _computes_in_16_bits() -> bool:
    return str(tf.keras.mixed_precision.global_policy().compute_dtype) == "float16"


def _pool(layer: Layer, sides: int, dtype: Optional[str]) -> Any:
    pools = {
        ("max_pool", 2): _keras.MaxPool2D,
        ("max_pool", 3): _keras.MaxPool3D,
        ("average_pool", 2): _keras.AveragePooling2D,
        ("average_pool", 3): _keras.AveragePooling3D,
    }
    options = layer.options
    return pools[layer.kind, sides](
        options["window"], options["strides"], options["padding"], name=layer.name, dtype=dtype
    )


def _activation(layer: Layer, sides: int) -> Any:
    function = layer.options["function"]
    return (
        _keras.LeakyReLU(name=layer.name) if function == "LeakyReLU" else _keras.Activation(function, name=layer.name)
    )


# What makes a layer of each kind; the second argument is the number of its input's dimensions beside the channels.
_LAYERS: Dict[str, Callable[[Layer, int], Any]] = {
    "normalise": lambda layer, sides: Normalise(layer.options["mean"], layer.options["std"], layer.name),
    "density": lambda layer, sides: CountsToDensity(layer.options["how"], layer.name),
    "conv": lambda layer, sides: _conv(layer, {2: _keras.Conv2D, 3: _keras.Conv3D}[sides]),
    "pad": lambda layer, sides: {2: _keras.ZeroPadding2D, 3: _keras.ZeroPadding3D}[sides](
        layer.options["width"], name=layer.name
    ),
    "batch_norm": lambda layer, sides: _keras.BatchNormalization(
        momentum=layer.options["momentum"],
        epsilon=layer.options["epsilon"],
        gamma_initializer=layer.options["gamma"],
        name=layer.name,
    ),
    "group_norm": lambda layer, sides: GroupNorm(
        layer.options["groups"], layer.options["epsilon"], layer.name, layer.options["gamma"]
    ),
    "downsample": lambda layer, sides: Downsample(name=layer.name),
    "activation": _activation,
    "global_average_pool": lambda layer, sides: {
        2: _keras.GlobalAveragePooling2D,
        3: _keras.GlobalAveragePooling3D,
    }[sides](name=layer.name),
    "add": lambda layer, sides: _keras.Add(name=layer.name),
    "flatten": lambda layer, sides: _keras.Flatten(name=layer.name),
    "dense": lambda layer, sides: _dense(layer, _keras.Dense),
    "scale": lambda layer, sides: Scale(layer.options["factor"], layer.name),
}

# Those whose 16-bit kernels are two orders slower on CPUs than in 32 bits.
_IN_32_BITS: Dict[str, Callable[[Layer, int], Any]] = {
    "conv": lambda layer, sides: _conv(layer, {2: Conv2DIn32Bits, 3: Conv3DIn32Bits}[sides]),
    "dense": lambda layer, sides: _dense(layer, DenseIn32Bits),
}
