"""The CPU backend: replicas, stages, accumulation and reduction as on IPUs, with Keras fit and MPI."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any, ContextManager, Dict, Optional, Sequence

import numpy as np
import tensorflow as tf

from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.workers.backends.cpu.draws import DrawPosition, PositionedDropout
from ipulaunch.workers.backends.cpu.replicated import ReplicatedModel, make_replicated
from ipulaunch.workers.backends.interface import Backend, Estimators, Feed, Maker, Progress
from ipulaunch.workers.models.measures import Measure
from ipulaunch.workers.models.optimizers import create_variables
from ipulaunch.workers.models.variables import read_variable


class CpuBackend(Backend[ReplicatedModel]):
    """Builds, trains and validates a model on the CPUs of this instance."""

    runs_by_replica = True
    steps_per_update = 1  # Keras counts our train function, which makes a whole update

    def begin(self) -> None:
        self.position = DrawPosition(self.settings.training.seed)
        self.sums: Dict[Any, Any] = {}  # what validation calls for a micro-batch, by model and feed

    def scope(self) -> ContextManager[None]:
        """Models are made inside it."""
        return contextlib.nullcontext()

    def dropout(self, rate: float, name: str) -> Any:
        return PositionedDropout(rate, name, self.position)

    def prepare(
        self, model: tf.keras.Model, optimizer: Any, measures: Sequence[Measure], events: Optional[HostEvents]
    ) -> ReplicatedModel:
        """The model, ready for fit(), with the weights of instance 0 on all; the first measure is the loss."""
        for weight in model.weights:
            value = read_variable(weight)
            weight.assign(self.collective.sum(value if self.index == 0 else np.zeros_like(value)))
        replicated = make_replicated(
            model, measures, self.settings, self.plan, self.index, self.collective, self.position
        )
        self.times.follow(lambda: replicated.input_wait.seconds)
        create_variables(optimizer, model.trainable_variables)  # or the update would be traced once more to make them
        replicated.compile(optimizer=optimizer)
        return replicated

    def validate(
        self, model: ReplicatedModel, feed: Feed, samples: int, micro_size: int, progress: Progress
    ) -> Dict[str, float]:
        """The measures over the whole set: the same to the last bit for any number of instances.

        Every micro-batch of the set has a row of its own in the reduced table, where all instances but one add 0;
        the rows are then summed in the same order everywhere.
        """
        steps = -(-samples // (micro_size * self.batch.replicas))
        table = np.zeros((steps, self.batch.replicas, len(model.measures) + 1))
        local, first = len(self.replicas), self.replicas.start
        if (model, feed.make) not in self.sums:
            self.sums[model, feed.make] = tf.function(functools.partial(_sums, model, feed.make))
        for index, (inputs, targets, weights) in enumerate(feed.stream):
            table[index // local, first + index % local] = self.sums[model, feed.make](inputs, targets, weights)
            progress(index + 1, steps * local)
        totals = self.collective.sum(table).sum(axis=(0, 1))
        return {measure.name: float(totals[i] / totals[-1]) for i, measure in enumerate(model.measures)}

    def export(self, model: tf.keras.Model, spec: tf.TensorSpec, directory: Path, iterations: int) -> None:
        """Write a SavedModel that any TensorFlow loads; every call runs it once."""
        from ipulaunch.workers.backends.cpu.export import save_model  # no training needs it

        save_model(model, spec, directory)

    def estimators(self) -> Estimators:
        from ipulaunch.workers.backends.cpu.estimators import CpuEstimators

        return CpuEstimators(self)


def _sums(model: ReplicatedModel, make: Optional[Maker], inputs: Any, targets: Any, weights: Any) -> Any:
    """The measures of a micro-batch, summed, and then the sum of its weights."""
    if make is not None:
        inputs, targets = make(inputs)
    outputs = model.stages.outputs(inputs)
    values = [tf.cast(measure.of(targets, outputs) * weights, tf.float64) for measure in model.measures]
    return tf.stack([tf.reduce_sum(value) for value in values] + [tf.reduce_sum(tf.cast(weights, tf.float64))])
