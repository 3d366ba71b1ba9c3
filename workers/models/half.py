"""Layers of 16 bits on a CPU: they compute in 32, and round to 16 what half precision would store.

That is the output, and the gradients of inputs and weights: casts round them on their way back. Kernels of TensorFlow
for float16 are over a hundred times slower on CPUs, and round inside of each sum as well.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class _ConvIn32Bits:
    """Mixed into a convolution of Keras."""

    def call(self: Any, inputs: Any) -> Any:
        outputs = tf.nn.convolution(
            tf.cast(inputs, tf.float32),
            tf.cast(self.kernel, tf.float32),
            strides=list(self.strides),
            padding=self.padding.upper(),
            data_format=f"N{'DHW'[-self.rank :]}C",  # volumes have no gradient outside of a graph without it
        )
        return _finished(self, outputs)


class Conv2DIn32Bits(_ConvIn32Bits, tf.keras.layers.Conv2D):  # type: ignore[misc]
    """A convolution of images."""


class Conv3DIn32Bits(_ConvIn32Bits, tf.keras.layers.Conv3D):  # type: ignore[misc]
    """A convolution of volumes."""


class DenseIn32Bits(tf.keras.layers.Dense):  # type: ignore[misc]
    """A layer in which every output reads every input."""

    def call(self, inputs: Any) -> Any:
        return _finished(self, tf.matmul(tf.cast(inputs, tf.float32), tf.cast(self.kernel, tf.float32)))


def _finished(layer: Any, outputs: Any) -> Any:
    """What a layer stores: rounded sums, then bias and activation in the layer's own precision, as in half."""
    stored = tf.cast(outputs, layer.compute_dtype)
    if layer.use_bias:
        stored = tf.nn.bias_add(stored, layer.bias)
    return layer.activation(stored) if layer.activation is not None else stored
