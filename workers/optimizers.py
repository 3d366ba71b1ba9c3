"""The optimizer that the settings ask for."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from ipulaunch.configs.sections import Optimizer


def scaled_rate(settings: Optimizer, replicas: int) -> float:
    """The learning rate for this many replicas."""
    factor = {"none": 1.0, "linear": float(replicas), "sqrt": math.sqrt(replicas)}[settings.lr_scaling]
    return settings.learning_rate * factor


def make_optimizer(settings: Optimizer, replicas: int) -> Any:
    """A Keras 2 optimizer; the legacy ones where TensorFlow has both, since the IPU has only those."""
    optimizers = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)
    rate = scaled_rate(settings, replicas)
    if settings.name == "sgd":
        return optimizers.SGD(rate, momentum=settings.momentum)
    return {"adadelta": optimizers.Adadelta, "adam": optimizers.Adam}[settings.name](rate)
