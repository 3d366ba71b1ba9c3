"""From what is stored to what a network sees: the same operations on the host and as the first layer on the device."""

from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf

from ipulaunch.configs.cosmoflow import CosmoflowData


def density(counts: Any, how: str, dtype: Any) -> Any:
    """Particle counts as log(1 + count), or as parts of the volume's mean."""
    values = tf.cast(counts, dtype)
    if how == "log":
        return tf.math.log1p(values)
    return values / tf.reduce_mean(values, axis=list(range(1, len(values.shape))), keepdims=True)


def colours(pixels: Any, mean: Tuple[float, ...], std: Tuple[float, ...]) -> Any:
    """Pixels of 0 to 255, less the mean of their colour and divided by its deviation."""
    return (tf.cast(pixels, tf.float32) - tf.constant(mean)) / tf.constant(std)


def as_sent(stream: tf.data.Dataset, settings: Any) -> tf.data.Dataset:
    """A stream with its inputs as they leave the host: as they are stored, or as floats, normalised or not."""
    data = settings.data
    if data.synthetic_data == "ipu":  # nothing is sent
        return stream

    def send(inputs: Any) -> Any:
        if isinstance(data, CosmoflowData):
            return density(inputs, data.normalise, tf.float32) if data.host_preprocess else inputs
        if data.host_preprocess:
            return colours(inputs, data.mean, data.std)
        return inputs if data.sends_bytes else tf.cast(inputs, tf.float32)

    return stream.map(lambda inputs, *rest: (send(inputs), *rest))
