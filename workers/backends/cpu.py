"""The CPU backend: replicas, accumulation and reduction as on IPUs, with Keras fit and MPI."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, ContextManager, Dict, List, Sequence

import numpy as np
import tensorflow as tf

from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place
from ipulaunch.workers.backends.draws import DrawPosition, PositionedDropout
from ipulaunch.workers.measures import Measure


class ReplicatedModel(tf.keras.Model):  # type: ignore[misc]
    """A model whose weight update runs the micro-batches of all local replicas and reduces over all instances.

    Gradients, loss and measures of the update travel in one flat buffer and one all-reduce.
    """

    def __init__(
        self,
        inner: tf.keras.Model,
        measures: Sequence[Measure],
        batch: Batch,
        place: Place,
        collective: Any,
        position: DrawPosition,
    ) -> None:
        super().__init__(name="replicated")
        self.inner, self.measures = inner, list(measures)
        self.batch, self.place, self.collective, self.position = batch, place, collective, position
        self.trace: Any = None  # called with (epoch, update, step, replica, sample numbers) of every micro-batch
        self._update_function: Any = None

    def call(self, inputs: Any, training: Any = None) -> Any:
        return self.inner(inputs, training=training)

    def make_train_function(self, force: bool = False) -> Any:
        """What fit() calls for every weight update."""
        if self._update_function is None or force:
            self._update_function = tf.function(self._update)
        self.train_function = self._update_function
        return self.train_function

    def _update(self, stream: Any) -> Dict[str, Any]:
        weights = self.inner.trainable_variables
        total = self._sum_of_replicas(stream, weights)
        if self.place.instances > 1:
            size = total.shape
            total = tf.numpy_function(self.collective.sum, [total], tf.float32)
            total.set_shape(size)
        mean = total / (self.batch.replicas * self.batch.accumulation)
        shapes = [weight.shape for weight in weights]
        sizes = [shape.num_elements() for shape in shapes] + [len(self.measures)]
        *gradients, measured = tf.split(mean, sizes)
        gradients = [tf.reshape(gradient, shape) for gradient, shape in zip(gradients, shapes)]
        self.optimizer.apply_gradients(zip(gradients, weights))
        return {measure.name: measured[number] for number, measure in enumerate(self.measures)}

    def _sum_of_replicas(self, stream: Any, weights: List[Any]) -> Any:
        """Gradients and measures of the update, summed over our replicas as a balanced tree.

        Instances sum as a tree too, so the sum of all replicas has the same brackets, and the same bits, whatever
        the number of instances. Row k of `sums` waits with the sum of 2^k neighbouring replicas.
        """
        size = sum(weight.shape.num_elements() for weight in weights) + len(self.measures)
        replicas, levels = self.place.local_replicas, self.place.local_replicas.bit_length()
        sums = tf.zeros([levels, size])
        for replica in tf.range(replicas):
            total = self._sum_of_steps(stream, weights, replica)
            level = 0
            while tf.bitwise.right_shift(replica, level) % 2 == 1:
                total = sums[level] + total
                level += 1
            sums = tf.tensor_scatter_nd_update(sums, [[level]], [total])
        waiting = [sums[level] for level in range(levels) if replicas >> level & 1]  # one, for a power of two
        return functools.reduce(lambda later, earlier: earlier + later, waiting)

    def _sum_of_steps(self, stream: Any, weights: List[Any], replica: Any) -> Any:
        """Gradients and measures of one replica's micro-batches, in one flat buffer."""
        gradients = [tf.zeros_like(weight) for weight in weights]
        measured = tf.zeros([len(self.measures)])
        steps = self.batch.accumulation
        first = (self.optimizer.iterations * self.batch.replicas + self.place.first_replica) * steps
        for step in tf.range(steps, dtype=tf.int64):
            self.position.micro_batch.assign(first + tf.cast(replica, tf.int64) * steps + step)
            inputs, targets, *extra = next(stream)
            if self.trace is not None:
                epoch, ids = extra.pop()
                update = self.optimizer.iterations
                tf.numpy_function(self.trace, [epoch, update, step, self.place.first_replica + replica, ids], [])
            with tf.GradientTape() as tape:
                outputs = self.inner(inputs, training=True)
                values = [_mean(measure.of(targets, outputs), extra) for measure in self.measures]
            gradients = [total + part for total, part in zip(gradients, tape.gradient(values[0], weights))]
            measured += tf.stack(values)
        return tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients] + [measured], axis=0)


def _mean(values: Any, weights: List[Any]) -> Any:
    """The mean over a micro-batch; samples of weight 0 add nothing, as with Keras's sample weights."""
    return tf.reduce_mean(values * weights[0] if weights else values)


class CpuBackend:
    """Builds, trains and validates a model on the CPUs of this instance."""

    runs_by_replica = True
    steps_per_update = 1  # Keras counts our train function, which makes a whole update

    def __init__(self, batch: Batch, place: Place, collective: Any, seed: int) -> None:
        self.batch, self.place, self.collective = batch, place, collective
        self.position = DrawPosition(seed)

    def scope(self) -> ContextManager[None]:
        """Models are made inside it."""
        return contextlib.nullcontext()

    def dropout(self, rate: float, name: str) -> Any:
        return PositionedDropout(rate, name, self.position)

    def prepare(
        self, model: tf.keras.Model, optimizer: Any, measures: Sequence[Measure], updates_per_epoch: int
    ) -> ReplicatedModel:
        """The model, ready for fit(), with the weights of instance 0 on all; the first measure is the loss."""
        for weight in model.weights:
            value = weight.numpy()
            weight.assign(self.collective.sum(value if self.place.instance == 0 else np.zeros_like(value)))
        replicated = ReplicatedModel(model, measures, self.batch, self.place, self.collective, self.position)
        replicated.compile(optimizer=optimizer)
        return replicated

    def validate(self, model: ReplicatedModel, stream: tf.data.Dataset, samples: int) -> Dict[str, float]:
        """The measures over the whole set: the same to the last bit for any number of instances.

        Every micro-batch of the set has a row of its own in the reduced table, where all instances but one add 0;
        the rows are then summed in the same order everywhere.
        """
        steps = -(-samples // (self.batch.micro_size * self.batch.replicas))
        table = np.zeros((steps, self.batch.replicas, len(model.measures) + 1))
        local, first = self.place.local_replicas, self.place.first_replica
        for index, (inputs, targets, weights) in enumerate(stream):
            table[index // local, first + index % local] = self._sums(model, inputs, targets, weights)
        totals = self.collective.sum(table).sum(axis=(0, 1))
        return {measure.name: float(totals[i] / totals[-1]) for i, measure in enumerate(model.measures)}

    @tf.function  # type: ignore[untyped-decorator]
    def _sums(self, model: ReplicatedModel, inputs: Any, targets: Any, weights: Any) -> Any:
        outputs = model.inner(inputs, training=False)
        values = [tf.cast(measure.of(targets, outputs) * weights, tf.float64) for measure in model.measures]
        return tf.stack([tf.reduce_sum(value) for value in values] + [tf.reduce_sum(tf.cast(weights, tf.float64))])
