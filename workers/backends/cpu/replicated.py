"""A weight update of all replicas: their micro-batches one after the other, then one reduction over all instances."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Optional, Sequence

import tensorflow as tf

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import stage_ends
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.workers.backends.collective import Collective
from ipulaunch.workers.backends.cpu.draws import DrawPosition
from ipulaunch.workers.backends.cpu.input_wait import InputWait
from ipulaunch.workers.backends.cpu.stages import Stages
from ipulaunch.workers.backends.interface import Feed, Maker, Trace
from ipulaunch.workers.models.build import stage_models
from ipulaunch.workers.models.loss_scaling import LossScaling
from ipulaunch.workers.models.measures import Measure


class ReplicatedModel(tf.keras.Model):  # type: ignore[misc]
    """A model whose weight update runs the micro-batches of all local replicas and reduces over all instances.

    Gradients, measures and batch statistics of the update travel in one flat buffer and one all-reduce.
    """

    def __init__(
        self,
        inner: tf.keras.Model,
        stages: Stages,
        measures: Sequence[Measure],
        scaling: LossScaling,
        plan: Plan,
        index: int,
        collective: Collective,
        position: DrawPosition,
    ) -> None:
        # 32 bits, or Keras would put a loss scaling of its own around the optimizer.
        super().__init__(name="replicated", dtype="float32")
        self.inner, self.stages, self.measures, self.scaling = inner, stages, list(measures), scaling
        self.batch, self.replicas, self.instances = plan.batch, plan.replicas_of(index), plan.instances
        self.collective, self.position, self.input_wait = collective, position, InputWait()
        self.make: Optional[Maker] = None  # of the feed
        self.trace: Optional[Trace] = None
        self._update_function: Any = None
        # A function of its own is traced once. The loops around it hand on one tensor instead of one for each weight.
        # Both matter for deep networks, whose first update waits for the graph.
        self._of_micro_batch = tf.function(self._flat_parts, autograph=False)

    @property
    def more(self) -> List[Any]:
        """State that a checkpoint has to hold beside weights and optimizer."""
        return self.scaling.variables

    def call(self, inputs: Any, training: Any = None) -> Any:
        return self.inner(inputs, training=training)

    def fit(self, feed: Feed, *, epochs: int, steps_per_epoch: int, callbacks: Sequence[Any]) -> Any:
        """Make so many updates an epoch with the micro-batches of a feed."""
        if (feed.make, feed.trace) != (self.make, self.trace):
            self.make, self.trace, self._update_function = feed.make, feed.trace, None
        return super().fit(
            feed.stream, epochs=epochs, steps_per_epoch=steps_per_epoch, callbacks=list(callbacks), verbose=0
        )

    def make_train_function(self, force: bool = False) -> Any:
        """What fit() calls for every weight update."""
        if self._update_function is None or force:
            self._update_function = tf.function(self._update)  # with autograph, for the loops
        self.train_function = self._update_function
        return self.train_function

    def _update(self, stream: Any) -> Dict[str, Any]:
        weights, statistics = self.stages.weights, self.inner.non_trainable_variables
        before = [variable.read_value() for variable in statistics]
        total = self._sum_of_replicas(stream, before)
        if self.instances > 1:
            size = total.shape
            total = tf.numpy_function(self.collective.sum, [total], tf.float32)
            total.set_shape(size)
        gradients, measured, averages = self._divided(total)
        micro_batches = self.batch.replicas * self.batch.accumulation
        gradients = self.scaling.resolve([gradient / micro_batches for gradient in gradients])
        self.optimizer.apply_gradients(zip(gradients, weights))
        for variable, average in zip(statistics, averages):
            variable.assign(tf.cast(average / micro_batches, variable.dtype))
        return {measure.name: measured[i] / micro_batches for i, measure in enumerate(self.measures)}

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def _divided(self, total: Any) -> Any:
        """The gradients, the measures and the moving averages of batch statistics in a flat buffer."""
        weights, statistics = self.stages.weights, self.inner.non_trainable_variables
        shapes = [variable.shape for variable in [*weights, *statistics]]
        sizes = [shape.num_elements() for shape in shapes]
        *parts, measured = tf.split(total, [*sizes, len(self.measures)])
        parts = [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]
        return parts[: len(weights)], measured, parts[len(weights) :]

    def _sum_of_replicas(self, stream: Any, before: List[Any]) -> Any:
        """The flat buffer of the update, summed over our replicas as a balanced tree.

        Instances sum as a tree too, so the sum of all replicas has the same brackets, and the same bits, whatever
        the number of instances. Place k of `sums` waits with the sum of 2^k neighbouring replicas.
        """
        replicas, levels = len(self.replicas), len(self.replicas).bit_length()
        sums = tf.TensorArray(tf.float32, levels, clear_after_read=False, element_shape=[self._size()])
        for replica in tf.range(replicas):
            total = self._sum_of_steps(stream, replica, before)
            level = 0
            while tf.bitwise.right_shift(replica, level) % 2 == 1:
                total = sums.read(level) + total
                level += 1
            sums = sums.write(level, total)
        waiting = [sums.read(level) for level in range(levels) if replicas >> level & 1]  # one, for a power of two
        total = waiting[0]
        for later in waiting[1:]:
            total = later + total
        return total

    def _size(self) -> int:
        variables = [*self.stages.weights, *self.inner.non_trainable_variables]
        return sum(int(variable.shape.num_elements()) for variable in variables) + len(self.measures)

    def _sum_of_steps(self, stream: Any, replica: Any, before: List[Any]) -> Any:
        """Gradients, batch statistics and measures of one replica's micro-batches, in one flat buffer."""
        total = tf.zeros([self._size()])
        steps = self.batch.accumulation
        first = (self.optimizer.iterations * self.batch.replicas + self.replicas.start) * steps
        for step in tf.range(steps, dtype=tf.int64):
            tf.autograph.experimental.set_loop_options(parallel_iterations=self.input_wait.most_at_once)
            self.position.micro_batch.assign(first + tf.cast(replica, tf.int64) * steps + step)
            inputs, targets, *extra = self.input_wait.next(stream)
            if self.trace is not None:
                epoch, *numbers = extra.pop()
                place = [epoch, self.optimizer.iterations, step, self.replicas.start + replica]
                tf.numpy_function(self.trace, [*place, *numbers], [])
            if self.make is not None:
                inputs, targets = self.make(inputs)
            # Each micro-batch moves the averages by itself.
            for variable, value in zip(self.inner.non_trainable_variables, before):
                variable.assign(value)
            total += self._of_micro_batch(inputs, targets, extra)
        return total

    def _flat_parts(self, inputs: Any, targets: Any, weights: List[Any]) -> Any:
        """Gradients, batch statistics and measures of one micro-batch, in one flat buffer."""
        gradients, outputs = self.stages.gradients(inputs, functools.partial(self._loss, targets, weights))
        averages = [variable.read_value() for variable in self.inner.non_trainable_variables]
        parts = [tf.reshape(tf.cast(part, tf.float32), [-1]) for part in [*gradients, *averages]]
        return tf.concat([*parts, [_mean(measure.of(targets, outputs), weights) for measure in self.measures]], axis=0)

    def _loss(self, targets: Any, weights: List[Any], outputs: Any) -> Any:
        return self.scaling.scaled(_mean(self.measures[0].of(targets, outputs), weights))


def make_replicated(
    model: tf.keras.Model,
    measures: Sequence[Measure],
    settings: WorkloadSettings,
    plan: Plan,
    index: int,
    collective: Collective,
    position: DrawPosition,
) -> ReplicatedModel:
    """A model in the stages of the settings, with their loss scaling."""
    splits, optimizer = settings.pipeline.splits, settings.optimizer
    models = stage_models(model, stage_ends(network_of(settings), splits)) if splits else [model]
    stages = Stages(models, model.trainable_variables)
    scaling = LossScaling(optimizer.loss_scaling, optimizer.auto_loss_scaling)
    return ReplicatedModel(model, stages, measures, scaling, plan, index, collective, position)


def _mean(values: Any, weights: List[Any]) -> Any:
    """The mean over a micro-batch; samples of weight 0 add nothing, as with Keras's sample weights."""
    return tf.reduce_mean(values * weights[0] if weights else values)
