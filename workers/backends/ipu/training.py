"""A model in training on IPUs, and its validation: what Keras counts there, and what the host sees of it."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.workers.backends.interface import Feed
from ipulaunch.workers.backends.ipu.device import IpuDevice
from ipulaunch.workers.backends.ipu.feeds import as_fed
from ipulaunch.workers.backends.ipu.loss_scaling import UpdateCount, follow_gradients, state_of
from ipulaunch.workers.backends.ipu.measures import MeanOf, WithoutLossScale, log_loss_of_all, loss_of
from ipulaunch.workers.backends.ipu.model import divide, in_32_bits, set_feeds
from ipulaunch.workers.backends.ipu.statistics import adapt, shares_of
from ipulaunch.workers.models.loss_scaling import LossScaling
from ipulaunch.workers.models.measures import Measure
from ipulaunch.workers.models.variables import read_variable


class IpuTraining:
    """A model whose fit() counts the steps of one replica. PopDist's metrics are those of all replicas already."""

    def __init__(
        self,
        settings: WorkloadSettings,
        device: IpuDevice,
        model: tf.keras.Model,
        stages: Dict[str, int],
        optimizer: Any,
        measures: Sequence[Measure],
    ) -> None:
        self.settings, self.device, self.batch = settings, device, device.plan.batch
        self.model, self.stages, self.optimizer, self.measures = model, stages, optimizer, measures
        chosen, shares = self.settings.optimizer, shares_of(model, self.batch.replicas)
        # Keras divides the loss by the replicas; as in the published application, none of the scale is lost by that.
        in_sync = device.replicas_in_sync
        is_scaled = chosen.loss_scaling != 1 and not chosen.auto_loss_scaling
        self.scaling = LossScaling(chosen.loss_scaling * in_sync if is_scaled else 1.0)
        adapt(optimizer, self.scaling, shares, summed=self.batch.replicas // in_sync)
        self.compiled_optimizer, self.more = optimizer, []  # type: Any, List[Any]
        if chosen.auto_loss_scaling:
            with device.scope():
                self.compiled_optimizer = follow_gradients(optimizer, chosen.loss_scaling, shares)
            self.more = state_of(self.compiled_optimizer)
        self.validator: Any = None
        self.validated_as: Tuple[int, int] = (0, 0)
        self.steps_per_execution = 0

    def compile(self, steps_per_execution: int) -> None:
        """Make one device call so many steps of a replica long."""
        loss, *others = self.measures
        metrics = "weighted_metrics" if self.settings.training.remainder == "pad" else "metrics"
        with self.device.scope(), in_32_bits():
            self.model.compile(
                optimizer=self.compiled_optimizer,
                loss=loss_of(loss, self.scaling),
                steps_per_execution=steps_per_execution,
                **{metrics: [MeanOf(measure, self._over_replicas) for measure in others]},
            )
            if not self.device.reduces_metrics:
                log_loss_of_all(self.model, self._over_replicas)
        self.steps_per_execution = steps_per_execution

    def _over_replicas(self, value: Any) -> Any:
        """A metric of this replica as the mean over all, on the device: the host sees those of one replica only."""
        if self.device.reduces_metrics:
            return value
        return self.device.sdk.ipu.ops.cross_replica_ops.cross_replica_mean(value)

    def fit(self, feed: Feed, *, epochs: int, steps_per_epoch: int, callbacks: Sequence[Any]) -> None:
        """Make so many steps of a replica an epoch. The feed has no trace: the settings refuse it on IPUs."""
        self.device.round_as(self.device.training_rounding)
        self.device.begin_after(int(read_variable(self.optimizer.iterations)))
        if steps_per_epoch != self.steps_per_execution:  # resumed inside a call, or with other events than prepared for
            self.compile(steps_per_epoch)
        self.model.fit(
            self.fed(feed),
            epochs=epochs,
            # The SDK's fit() counts micro-batches of the stream here, and divides by the replicas of this instance.
            steps_per_epoch=steps_per_epoch * self.device.plan.replicas_per_instance,
            callbacks=[*self._own_callbacks(), *callbacks],
            verbose=0,
        )

    def sums(self, feed: Feed, samples: int, micro_size: int) -> np.ndarray:
        """Every measure summed over the samples of this instance, then their weights; in one device call."""
        self.device.round_as(self.device.no_rounding)
        steps = -(-samples // (micro_size * self.batch.replicas))
        more = -steps % self._validation_turn
        stream = padded(self.fed(feed), more * self.device.plan.replicas_per_instance)
        validator = self._validator(stream.element_spec, steps + more, micro_size)
        rows = validator.predict(stream.map(as_inputs), verbose=0)
        return np.asarray(rows.sum(axis=0, dtype=np.float64))

    @property
    def _validation_turn(self) -> int:
        """Validation takes a multiple of so many steps: what the published application accumulates in it."""
        return 2 * self.settings.pipeline.stages if self.settings.pipeline.splits else 1

    def _validator(self, specs: Any, steps: int, micro_size: int) -> tf.keras.Model:
        if self.validator is None or self.validated_as != (steps, micro_size):
            with self.device.scope():
                model = make_validator(self.model, self.measures, specs)
                if self.settings.pipeline.splits:
                    divide(model, self.stages, self.settings, self._validation_turn, self.device.sdk)
                set_feeds(model, self.settings)
                with in_32_bits():
                    model.compile(steps_per_execution=steps)
            self.validator, self.validated_as = model, (steps, micro_size)
        return self.validator

    def _own_callbacks(self) -> List[Any]:
        """What comes before the callbacks that read logs and state."""
        if self.compiled_optimizer is self.optimizer:
            return [WithoutLossScale(float(read_variable(self.scaling.scale)))]
        return [UpdateCount(self.optimizer, self.steps_per_execution // self.batch.accumulation)]

    def fed(self, feed: Feed) -> tf.data.Dataset:
        """A stream as the IPU's feeds take it; where the device makes samples up, with zeros of their shapes."""
        stream = feed.stream
        if feed.make is not None:
            made = tf.function(feed.make).get_concrete_function(stream.element_spec[0]).structured_outputs
            zeros = [tf.zeros(spec.shape, spec.dtype) for spec in made]
            stream = stream.map(lambda inputs, targets, *rest: (*zeros, *rest))
        return as_fed(stream)


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
