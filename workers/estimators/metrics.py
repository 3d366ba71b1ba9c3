"""Evaluation metrics: means over the samples of an instance, and then of all instances."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ipulaunch.workers.backends.collective import Collective
from ipulaunch.workers.models.measures import Measure


def make_metrics(measures: Sequence[Measure]) -> Callable[..., Dict[str, Any]]:
    """What takes every measure of samples, in any shape, and then their weights, to TensorFlow 1's metrics.

    The names are not the measures' own: an Estimator keeps `loss` for itself.
    """

    def metrics(*values: Any) -> Dict[str, Any]:
        *measured, weights = values
        return {
            f"mean_{measure.name}": tf.compat.v1.metrics.mean(value, weights)
            for measure, value in zip(measures, measured)
        }

    return metrics


def over_instances(
    found: Mapping[str, Any], weight: float, measures: Sequence[Measure], collective: Collective
) -> Dict[str, float]:
    """The means over the samples of all instances, from those of this one and how many samples it had."""
    sums = [float(found[f"mean_{measure.name}"]) * weight for measure in measures]
    totals = collective.sum(np.array([*sums, weight]))
    return {measure.name: float(totals[i] / totals[-1]) for i, measure in enumerate(measures)}
