"""Losses and metrics as the SDK's Keras takes them."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from ipulaunch.workers.models.loss_scaling import LossScaling
from ipulaunch.workers.models.measures import Measure


def _as_made(targets: Any) -> Any:
    """Targets as the data has them: Keras gives labels a second dimension, and floats the type of the outputs."""
    if targets.dtype.is_floating:
        return tf.cast(targets, tf.float32)
    return tf.squeeze(targets, -1) if targets.shape.rank == 2 else targets


def loss_of(measure: Measure, scaling: LossScaling) -> Callable[[Any, Any], Any]:
    """What is minimised, for every sample: the measure times the loss scale."""

    def loss(targets: Any, outputs: Any) -> Any:
        return scaling.scaled(measure.of(_as_made(targets), outputs))

    return loss


Reduction = Callable[[Any], Any]


class LossOfAll(tf.keras.metrics.Mean):  # type: ignore[misc]
    """What Keras logs as the loss, as the mean over all replicas."""

    def __init__(self, over_replicas: Reduction) -> None:
        super().__init__(name="loss", dtype=tf.float32)
        self.over_replicas = over_replicas

    def result(self) -> Any:
        return self.over_replicas(super().result())


def log_loss_of_all(model: tf.keras.Model, over_replicas: Reduction) -> None:
    """Let a compiled model log the loss of all replicas.

    Keras makes the metric of its loss itself, and keeps it under one of these names: the first in Keras 2.6.0, which
    every SDK has, the second in later ones.
    """
    losses = model.compiled_loss
    (name,) = (name for name in ("_loss_metric", "_total_loss_mean") if hasattr(losses, name))
    setattr(losses, name, LossOfAll(over_replicas))


class MeanOf(tf.keras.metrics.Mean):  # type: ignore[misc]
    """A measure as a Keras metric; samples of weight 0 add nothing and still count, as in the loss."""

    def __init__(self, measure: Measure, over_replicas: Reduction) -> None:
        super().__init__(name=measure.name, dtype=tf.float32)
        self.measure, self.over_replicas = measure, over_replicas

    def result(self) -> Any:
        return self.over_replicas(super().result())

    def update_state(self, targets: Any, outputs: Any, sample_weight: Any = None) -> Any:
        values = self.measure.of(_as_made(targets), outputs)
        if sample_weight is not None:  # in the type of the outputs, and of any type 0 and 1 are exact
            values *= tf.cast(tf.reshape(sample_weight, [-1]), values.dtype)
        return super().update_state(values)


class WithoutLossScale(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Takes the loss scale out of the loss. It comes before the callbacks that read the logs."""

    def __init__(self, loss_scale: float) -> None:
        super().__init__()
        self.loss_scale = loss_scale

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        logs["loss"] = float(logs["loss"]) / self.loss_scale
