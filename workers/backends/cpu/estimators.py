"""Estimators on CPUs: a step of TensorFlow's own Estimator is a weight update of all replicas."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import numpy as np
import tensorflow as tf

from ipulaunch.topology.networks import network_of
from ipulaunch.workers.backends.cpu.draws import PositionedDropout
from ipulaunch.workers.backends.interface import Backend, Estimators
from ipulaunch.workers.models.estimators import Stage, in_turn, make_chain, make_metrics, make_optimizer, named


class CpuEstimators(Estimators):
    """Makes Estimators for the CPUs of this instance.

    A step takes the micro-batches of all our replicas. They run one after the other, so that each is computed alike
    however many there are, and their gradients are then averaged over all replicas of all instances.
    """

    returns_each_step = True

    def __init__(self, backend: Backend[Any]) -> None:
        super().__init__(backend)
        self.rows = len(self.replicas) * self.batch.accumulation  # micro-batches of an update, in training

    def updates_per_run(self, updates_per_call: int) -> int:
        """Weight updates between two returns to the host."""
        return 1

    def evaluation_steps(self, steps: int) -> int:
        """How many steps evaluation is padded to."""
        return steps

    def begin_after(self, update: int) -> None:
        """The global step says it to the layers that draw."""

    def make(self, config: Dict[str, Any], steps_per_call: int, is_training: bool) -> Any:
        """An Estimator, which returns to the host after every step, whatever a device call would be."""
        return tf.estimator.Estimator(self._model, config=tf.estimator.RunConfig(**config))

    def training_feed(self, stream: tf.data.Dataset) -> tf.data.Dataset:
        return named(stream, self.batch.micro_size).batch(self.rows, drop_remainder=True)

    def evaluation_feed(self, stream: tf.data.Dataset, micro_size: int, more: int) -> tf.data.Dataset:
        return named(stream, micro_size).batch(len(self.replicas), drop_remainder=True)

    def _model(self, features: Dict[str, Any], mode: str) -> Any:
        settings, is_training = self.settings, mode == tf.estimator.ModeKeys.TRAIN
        position: Any = _Position(settings.training.seed)
        stages = make_chain(
            network_of(settings),
            settings.pipeline.splits,
            lambda rate, name: PositionedDropout(rate, name, position),
            self.measures,
            native_half=False,
            is_training=is_training,
        )
        # Makes the weights, which a loop cannot; nothing of it is ever run.
        in_turn(stages, {name: value[0] for name, value in features.items()})
        if is_training:
            loss, counted = self._update(stages, features, position)
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=counted)
        found = tf.map_fn(
            lambda fields: in_turn(stages, fields),
            features,
            parallel_iterations=1,
            fn_output_signature=(tf.float32,) * (len(self.measures) + 1),
        )
        metrics = make_metrics(self.measures)(*found)
        return tf.estimator.EstimatorSpec(mode, loss=tf.reduce_mean(found[0]), eval_metric_ops=metrics)

    def _update(self, stages: Sequence[Stage], features: Dict[str, Any], position: _Position) -> Any:
        """The loss over all replicas, and the operation that makes an update and counts its steps."""
        batch, replicas = self.batch, self.replicas
        step, weights = tf.compat.v1.train.get_global_step(), tf.compat.v1.trainable_variables()
        with tf.control_dependencies(list(features.values())):  # the first thing that a run of the session needs
            given = tf.numpy_function(lambda: self.times.was("data"), [], [])
        with tf.control_dependencies([given]):
            features = {name: tf.identity(value) for name, value in features.items()}
        first = (step // batch.accumulation * batch.replicas + replicas.start) * batch.accumulation

        def gradients(row: Any) -> Any:
            number, fields = row
            position.micro_batch = number
            loss = in_turn(stages, fields)
            return _flat([*tf.gradients(loss, weights), loss])

        rows = (first + tf.range(self.rows, dtype=tf.int64), features)
        table = tf.map_fn(gradients, rows, parallel_iterations=1, fn_output_signature=tf.float32)
        total = _sum_of(table, len(replicas), batch.accumulation)
        shapes = [[*weight.shape] for weight in weights] + [[]]
        sizes = [int(np.prod(shape)) for shape in shapes]
        if self.plan.instances > 1:
            total = tf.numpy_function(self.collective.sum, [total], tf.float32)
        total = tf.reshape(total, [sum(sizes)]) / (batch.replicas * batch.accumulation)
        *means, loss = [tf.reshape(part, shape) for part, shape in zip(tf.split(total, sizes), shapes)]
        applied = make_optimizer(self.settings, batch).apply_gradients(list(zip(means, weights)))
        with tf.control_dependencies([applied]):
            return loss, step.assign_add(batch.accumulation)


class _Position:
    """Where training is: the number of the micro-batch, in the whole run, whose operations are being made."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.micro_batch: Any = tf.constant(0, tf.int64)


def _flat(tensors: Sequence[Any]) -> Any:
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


def _sum_of(table: Any, replicas: int, steps: int) -> Any:
    """The sum of the rows: of the steps of each replica in order, then of the replicas as a balanced tree.

    Instances sum as a tree too, so the sum has the same brackets whatever the number of instances.
    """
    sums: List[Any] = []
    for replica in range(replicas):
        total = table[replica * steps]
        for step in range(1, steps):
            total += table[replica * steps + step]
        sums.append(total)
    while len(sums) > 1:
        odd = sums[len(sums) // 2 * 2 :]
        sums = [left + right for left, right in zip(sums[::2], sums[1::2])] + odd
    return sums[0]
