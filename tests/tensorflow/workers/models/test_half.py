"""Layers that compute in 32 bits and store 16, against sums in 32 bits and against TensorFlow's own half precision."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.workers.models.half import Conv2DIn32Bits, Conv3DIn32Bits, DenseIn32Bits
from ipulaunch.workers.models.precision import precision

_keras = tf.keras.layers
LAYERS = [
    pytest.param(Conv2DIn32Bits, _keras.Conv2D, (6, 6, 3), {"filters": 4, "kernel_size": 3}, id="images"),
    pytest.param(
        Conv2DIn32Bits, _keras.Conv2D, (7, 7, 3), {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same",
        "use_bias": False}, id="images, strides",
    ),
    pytest.param(
        Conv3DIn32Bits, _keras.Conv3D, (4, 4, 4, 2), {"filters": 3, "kernel_size": 2, "padding": "same"}, id="volumes"
    ),
    pytest.param(DenseIn32Bits, _keras.Dense, (17,), {"units": 5, "activation": "relu"}, id="dense"),
]  # fmt: skip


def _step(layer: Any, inputs: np.ndarray) -> Tuple[np.ndarray, ...]:
    """Outputs, the gradient of the inputs and those of the weights, of the sum of the squares of the outputs."""
    given = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(given)
        outputs = layer(given)
        total = tf.reduce_sum(tf.square(tf.cast(outputs, tf.float32)))
    found = tape.gradient(total, [given, *layer.trainable_variables])
    return (outputs.numpy(), *(each.numpy() for each in found))


def _made(kind: Callable[..., Any], options: Any, name: str, inputs: np.ndarray) -> Any:
    with precision(name):
        layer = kind(**options)
        layer.build((None, *inputs.shape[1:]))
    return layer


@pytest.mark.parametrize(("kind", "plain", "shape", "options"), LAYERS)
@pytest.mark.parametrize("bits", ["16.16", "16.32"])
def test_what_is_stored_is_the_sum_in_32_bits_rounded_to_16(
    bits: str, kind: Any, plain: Any, shape: Tuple[int, ...], options: Any
) -> None:
    """To the last bit for outputs: the oracle computes in 32 bits from the same 16-bit numbers, and rounds."""
    values = np.random.default_rng(7)
    inputs = values.normal(size=(2, *shape)).astype(np.float16)
    options = {**options, "bias_initializer": "zeros"}
    layer, oracle = _made(kind, options, bits, inputs), _made(plain, options, "32.32", inputs)
    weights = [values.normal(size=weight.shape).astype(np.float16) for weight in layer.weights]
    weights = [np.zeros_like(weight) if weight.ndim == 1 else weight for weight in weights]
    layer.set_weights(weights)
    oracle.set_weights([weight.astype(np.float32) for weight in weights])
    outputs, *gradients = _step(layer, inputs)
    expected, *wanted = _step(oracle, inputs.astype(np.float32))
    assert outputs.dtype == np.float16 and gradients[0].dtype == np.float16
    np.testing.assert_array_equal(outputs, expected.astype(np.float16))
    for found, value in zip(gradients, wanted):
        np.testing.assert_allclose(found.astype(np.float32), value, rtol=4e-3, atol=4e-3 * np.abs(value).max())
        np.testing.assert_array_equal(found, found.astype(np.float16), "a number that 16 bits hold")


@pytest.mark.parametrize(("kind", "plain", "shape", "options"), LAYERS)
def test_it_is_half_precision_but_for_the_rounding_inside_of_sums(
    kind: Any, plain: Any, shape: Tuple[int, ...], options: Any
) -> None:
    values = np.random.default_rng(8)
    inputs = values.normal(size=(2, *shape)).astype(np.float16)
    layer, native = (_made(each, options, "16.16", inputs) for each in (kind, plain))
    native.set_weights(layer.get_weights())
    for found, expected in zip(_step(layer, inputs), _step(native, inputs)):
        assert found.dtype == expected.dtype == np.float16
        wide = expected.astype(np.float32)
        np.testing.assert_allclose(found.astype(np.float32), wide, rtol=0.02, atol=0.02 * np.abs(wide).max())
