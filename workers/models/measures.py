"""Losses and metrics, as one value per sample: sums over any division of the samples are then exact."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Tuple

import tensorflow as tf

from ipulaunch.configs.settings.images import ImageSettings
from ipulaunch.configs.settings.workload import WorkloadSettings


class Measure(NamedTuple):
    """A loss or a metric."""

    name: str
    of: Callable[[Any, Any], Any]  # (targets, outputs) of a micro-batch to one value per sample, in 32 bits
    better: str = "lower"


def measures_of(settings: WorkloadSettings) -> Tuple[Measure, ...]:
    """What a workload minimises, and then what else it tells; the last one says which checkpoint is best."""
    if isinstance(settings, ImageSettings):
        return (_cross_entropy(settings.model.label_smoothing), Measure("accuracy", _is_right, better="higher"))
    return (Measure("loss", _squared_error), Measure("mae", _absolute_error))


def _squared_error(targets: Any, outputs: Any) -> Any:
    return tf.reduce_mean(tf.math.squared_difference(tf.cast(outputs, tf.float32), targets), axis=-1)


def _absolute_error(targets: Any, outputs: Any) -> Any:
    return tf.reduce_mean(tf.abs(tf.cast(outputs, tf.float32) - targets), axis=-1)


def _cross_entropy(smoothing: float) -> Measure:
    """The cross entropy of labels and logits, with a part of every label spread evenly over all classes."""

    def of(targets: Any, outputs: Any) -> Any:
        likelihoods = tf.nn.log_softmax(tf.cast(outputs, tf.float32))
        right = tf.gather(likelihoods, targets, batch_dims=1)
        if not smoothing:
            return -right
        return -(1 - smoothing) * right - smoothing * tf.reduce_mean(likelihoods, axis=-1)

    return Measure("loss", of)


def _is_right(targets: Any, outputs: Any) -> Any:
    guess = tf.argmax(outputs, axis=-1, output_type=tf.int32)
    return tf.cast(tf.equal(guess, tf.cast(targets, tf.int32)), tf.float32)
