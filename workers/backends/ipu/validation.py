"""Validation on IPUs: a model whose outputs are its measures, and a set padded to whole turns of the pipeline."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from ipulaunch.workers.backends.ipu.model import in_32_bits
from ipulaunch.workers.models.measures import Measure


def make_validator(model: tf.keras.Model, measures: Sequence[Measure], specs: Any) -> tf.keras.Model:
    """The model with its measures as outputs: a row per sample, each value times the sample's weight, then the weight.

    predict() hands out the rows of all replicas; evaluate() gives the metrics of one alone. It is a model of its
    own because the steps of training need not divide those of validation, and Keras knows one number for a model.
    """
    _, target_spec, weight_spec = specs
    targets = tf.keras.Input(target_spec.shape[1:], dtype=target_spec.dtype, name="validation_targets")
    weights = tf.keras.Input((1,), dtype=weight_spec.dtype, name="validation_weights")

    def weigh(tensors: Any) -> Any:
        outputs, true, weight = tensors
        values = tf.stack([measure.of(true, outputs) for measure in measures], axis=-1)
        return tf.concat([values * weight, weight], axis=-1)

    with in_32_bits():
        rows = tf.keras.layers.Lambda(weigh, name="validation_rows")([model.output, targets, weights])
        return tf.keras.Model([model.input, targets, weights], rows, name="validator")


def padded(stream: tf.data.Dataset, more: int) -> tf.data.Dataset:
    """A validation stream with so many micro-batches more, that repeat its first ones with weight 0.

    Real samples, since the measure of an empty one may be no number, and 0 times that is none either.
    """
    if not more:
        return stream
    weightless = stream.map(lambda inputs, targets, weights: (inputs, targets, tf.zeros_like(weights)))
    return stream.concatenate(weightless.repeat().take(more))


def as_inputs(inputs: Any, targets: Any, weights: Any) -> Any:
    """An element of a validation stream as the validator takes it."""
    return ((inputs, targets, weights[:, tf.newaxis]),)
