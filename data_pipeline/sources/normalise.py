"""From what is stored to what a network sees: the same operations on the host and as the first layer on the device."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import tensorflow as tf

from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.configs.settings.data import Data
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.configs.settings.workload import WorkloadSettings


def density(counts: Any, how: str, dtype: Any) -> Any:
    """Particle counts as log(1 + count), or relative to the volume's mean; an empty volume stays empty."""
    if how == "log":
        return tf.math.log1p(tf.cast(counts, dtype))
    values = tf.cast(counts, tf.float32)  # 16 bits end at 65504, less than a volume has particles
    mean = tf.reduce_mean(values, axis=list(range(1, len(values.shape))), keepdims=True)
    return tf.cast(tf.math.divide_no_nan(values, mean), dtype)


def colours(pixels: Any, mean: Tuple[float, ...], std: Tuple[float, ...]) -> Any:
    """Pixels of 0 to 255, minus the mean of their colour, divided by its standard deviation."""
    return (tf.cast(pixels, tf.float32) - tf.constant(mean)) / tf.constant(std)


def as_sent(stream: tf.data.Dataset, settings: WorkloadSettings, threads: int) -> tf.data.Dataset:
    """A stream with its inputs as they leave the host: as they are stored, or as floats, normalised or not.

    Several threads convert them ahead of time: a device must not wait for a logarithm.
    """
    send = conversion(settings.data)
    if send is None or settings.data.synthetic_data == "ipu":  # the host sends only sample numbers
        return stream
    return stream.map(lambda inputs, *rest: (send(inputs), *rest), threads, deterministic=True)


def conversion(data: Data) -> Optional[Callable[[Any], Any]]:
    """The conversion of inputs before the network takes them; None if there is none."""
    if isinstance(data, CosmoflowData) and data.host_preprocess:
        return lambda inputs: density(inputs, data.normalise, tf.float32)
    if isinstance(data, ImageData) and data.host_preprocess:
        return lambda inputs: colours(inputs, data.mean, data.std)
    if isinstance(data, ImageData) and not data.sends_bytes:
        return lambda inputs: tf.cast(inputs, tf.float32)
    return None
