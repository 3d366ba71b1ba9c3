"""The bits that layers compute in, and those that they keep their weights in."""

from __future__ import annotations

import contextlib
from typing import Iterator

import tensorflow as tf

# Keras policies, by the bits of computation and weights.
_POLICIES = {"16.16": "float16", "16.32": "mixed_float16", "32.32": "float32"}


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Layers made inside compute and keep their weights in these numbers of bits."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(_POLICIES[name])
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
