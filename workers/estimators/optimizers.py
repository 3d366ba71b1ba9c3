"""The optimizers of TensorFlow 1, which Estimators take."""

from __future__ import annotations

from typing import Any, Dict

import tensorflow as tf

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.workers.models.optimizers import scaled_rate, smoothing


def make_optimizer(settings: WorkloadSettings, batch: Batch) -> Any:
    """The optimizer that the settings ask for, with the constants that Keras gives it."""
    chosen, train = settings.optimizer, tf.compat.v1.train
    rate = scaled_rate(chosen, batch)
    constants: Dict[str, float] = {"epsilon": 1e-7 if chosen.epsilon is None else chosen.epsilon}
    if chosen.name == "adadelta":
        return train.AdadeltaOptimizer(rate, rho=0.95, **constants)
    if chosen.name == "adam":
        return train.AdamOptimizer(rate, **constants)
    if chosen.name == "rmsprop":
        return train.RMSPropOptimizer(rate, decay=smoothing(chosen, batch), momentum=chosen.momentum, **constants)
    if chosen.momentum:
        return train.MomentumOptimizer(rate, chosen.momentum)
    return train.GradientDescentOptimizer(rate)
