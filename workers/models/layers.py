"""The layers that Keras 2.6 does not have."""

from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf

from ipulaunch.data_pipeline.sources.normalise import colours, density


class CountsToDensity(tf.keras.layers.Layer):  # type: ignore[misc]
    """Normalises particle counts, which leave the host as int16, on the device.

    In 32 bits, like the host: 16 cannot hold the sum of a volume, nor counts above 2048.
    """

    def __init__(self, how: str, name: str) -> None:
        super().__init__(name=name, autocast=False)
        self.how = how

    def call(self, counts: Any) -> Any:
        return tf.cast(density(counts, self.how, tf.float32), self.compute_dtype)


class Normalise(tf.keras.layers.Layer):  # type: ignore[misc]
    """Pixels minus their mean, divided by their standard deviation, in 32 bits like on the host."""

    def __init__(self, mean: Tuple[float, ...], std: Tuple[float, ...], name: str) -> None:
        super().__init__(name=name, autocast=False)
        self.mean, self.std = mean, std

    def call(self, pixels: Any) -> Any:
        return tf.cast(colours(pixels, self.mean, self.std), self.compute_dtype)


class GroupNorm(tf.keras.layers.Layer):  # type: ignore[misc]
    """Every sample's channels in groups, each with mean 0 and variance 1, then scaled and shifted by channel.

    The statistics have 32 bits: the squares of a group easily leave the range of 16.
    """

    def __init__(self, groups: int, epsilon: float, name: str, gamma: str = "ones") -> None:
        super().__init__(name=name)
        self.groups, self.epsilon, self.first_gamma = groups, epsilon, gamma

    def build(self, shape: Any) -> None:
        self.gamma = self.add_weight(name="gamma", shape=(shape[-1],), initializer=self.first_gamma)
        self.beta = self.add_weight(name="beta", shape=(shape[-1],), initializer="zeros")
        super().build(shape)

    def call(self, inputs: Any) -> Any:
        sides, channels = inputs.shape[1:-1], inputs.shape[-1]
        values = tf.reshape(tf.cast(inputs, tf.float32), (-1, *sides, self.groups, channels // self.groups))
        within = [*range(1, 1 + len(sides)), len(sides) + 2]
        mean, variance = tf.nn.moments(values, within, keepdims=True)
        values = (values - mean) * tf.math.rsqrt(variance + self.epsilon)
        values = tf.cast(tf.reshape(values, (-1, *sides, channels)), self.compute_dtype)
        return values * self.gamma + self.beta


class Downsample(tf.keras.layers.Layer):  # type: ignore[misc]
    """Every second pixel along each side, and behind the channels as many of zeros."""

    def call(self, inputs: Any) -> Any:
        sides = len(inputs.shape) - 2
        values = inputs[(slice(None), *(slice(None, None, 2) for _ in range(sides)))]
        return tf.pad(values, [*([0, 0] for _ in range(sides + 1)), [0, inputs.shape[-1]]])


class Scale(tf.keras.layers.Layer):  # type: ignore[misc]
    """All of it times a constant."""

    def __init__(self, factor: float, name: str) -> None:
        super().__init__(name=name)
        self.factor = factor

    def call(self, inputs: Any) -> Any:
        return inputs * self.factor
