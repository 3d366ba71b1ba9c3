"""From what is stored to what a network sees: the same operations on the host and as the first layer on the device."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def density(counts: Any, how: str, dtype: Any) -> Any:
    """Particle counts as log(1 + count), or as parts of the volume's mean."""
    values = tf.cast(counts, dtype)
    if how == "log":
        return tf.math.log1p(values)
    return values / tf.reduce_mean(values, axis=list(range(1, len(values.shape))), keepdims=True)
