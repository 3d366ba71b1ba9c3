"""The generators that initial weights come from."""

from __future__ import annotations

import random

import numpy as np
import tensorflow as tf


def seed_generators(seed: int) -> None:
    """Start the generators that initial weights come from; some Keras versions draw seeds from Python's own."""
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
