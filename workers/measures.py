"""Losses and metrics, as one value per sample: sums over any division of the samples are then exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import tensorflow as tf


@dataclass(frozen=True)
class Measure:
    """A loss or a metric."""

    name: str
    of: Callable[[Any, Any], Any]  # (targets, outputs) of a micro-batch to one value per sample


def _squared_error(targets: Any, outputs: Any) -> Any:
    return tf.reduce_mean(tf.math.squared_difference(outputs, targets), axis=-1)


def _absolute_error(targets: Any, outputs: Any) -> Any:
    return tf.reduce_mean(tf.abs(outputs - targets), axis=-1)


MEAN_SQUARED_ERROR = Measure("loss", _squared_error)
MEAN_ABSOLUTE_ERROR = Measure("mae", _absolute_error)
