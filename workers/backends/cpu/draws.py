"""Random numbers that depend on (seed, update, step, replica, layer) and on nothing else."""

from __future__ import annotations

import zlib
from typing import Any

import tensorflow as tf


class DrawPosition:
    """Where training is: one number per micro-batch of the whole run, set before each."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.micro_batch = tf.Variable(0, dtype=tf.int64, trainable=False, name="micro_batch")


class PositionedDropout(tf.keras.layers.Layer):  # type: ignore[misc]
    """Dropout whose mask is the same whichever instance draws it, and again when a run resumes."""

    def __init__(self, rate: float, name: str, position: DrawPosition) -> None:
        super().__init__(name=name)
        self.rate, self.position = rate, position
        self.stream = position.seed * 0x9E3779B1 + zlib.crc32(name.encode()) & 0x7FFFFFFF

    def call(self, inputs: Any, training: Any = None) -> Any:
        if not training or not self.rate:
            return inputs
        seed = tf.stack([tf.constant(self.stream, tf.int64), self.position.micro_batch])
        kept = tf.random.stateless_uniform(tf.shape(inputs), seed) >= self.rate
        return inputs * tf.cast(kept, inputs.dtype) / (1 - self.rate)
