"""The IPU backend: PopDist, the SDK's distribution strategies and its Keras. For Poplar SDK 2.6 to 3.4."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.topology import Batch
from ipulaunch.topology.host_events import HostEvents
from ipulaunch.topology.ipu_refusals import ipus_needed, refuse
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.popdist import Place
from ipulaunch.topology.splits import stage_ends
from ipulaunch.workers.backends.interface import Backend, Feed, Progress
from ipulaunch.workers.backends.ipu_device import IpuDevice
from ipulaunch.workers.backends.ipu_environment import engine_options, flags
from ipulaunch.workers.backends.ipu_feeds import as_fed
from ipulaunch.workers.backends.ipu_hosts import OverHosts
from ipulaunch.workers.backends.ipu_measures import MeanOf, MeanOverInstances, log_loss_of_all, loss_of
from ipulaunch.workers.backends.ipu_model import accumulate, divide, for_ipus, in_32_bits, stage_numbers
from ipulaunch.workers.backends.ipu_sdk import load_sdk
from ipulaunch.workers.backends.ipu_statistics import adapt, learnt_statistics, shares_of
from ipulaunch.workers.backends.ipu_validation import as_inputs, make_validator, padded
from ipulaunch.workers.collective import Alone
from ipulaunch.workers.loss_scaling import LossScaling
from ipulaunch.workers.measures import Measure

_ONE_REPLICA = (
    "training losses and metrics are those of one of the {} replicas of each instance: SDKs before 3.1 log no others;"
    " weights and validation are those of all"
)


class IpuBackend(Backend["IpuTraining"]):
    """Builds, trains and validates a model on the IPUs of this instance."""

    runs_by_replica = False

    def __init__(self, settings: Any, batch: Batch, place: Place) -> None:
        self.steps_per_update = batch.accumulation
        os.environ.update(flags(settings, os.environ))
        self.sdk = load_sdk()
        # A process that poprun did not start takes the IPUs that its model needs.
        is_placed = self.sdk.popdist.isPopdistEnvSet()
        refuse(settings, batch, place.ipus_per_replica if is_placed else ipus_needed(settings.pipeline))
        self.device = IpuDevice(self.sdk, settings, place, is_placed)
        super().__init__(settings, batch, place, OverHosts(self.sdk.sum, place) if place.instances > 1 else Alone())

    def report_to(self, directory: Path) -> None:
        """Write there what --profile asks for; a run directory is made when the instances have found each other.

        The device is configured anew: what it finds in its cache of executables depends on the options it sees then.
        """
        if self.settings.device.profile:
            directory.mkdir(parents=True, exist_ok=True)
            os.environ.update(engine_options(directory, os.environ))
            self.device.attach()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Models are made inside it: only those can run on IPUs."""
        with self.device.strategy.scope(), learnt_statistics():
            yield

    def dropout(self, rate: float, name: str) -> Any:
        return tf.keras.layers.Dropout(rate, name=name)

    def prepare(
        self, model: tf.keras.Model, optimizer: Any, measures: Sequence[Measure], events: HostEvents
    ) -> IpuTraining:
        """The model, ready for fit(); the first measure is the loss. The weights are those of instance 0 on all."""
        model = for_ipus(model, self.settings, self.sdk)
        splits = self.settings.pipeline.splits
        ends = stage_ends(network_of(self.settings), splits) if splits else ()
        stages = stage_numbers(model, ends)
        if self.settings.pipeline.splits:
            divide(model, stages, self.settings, self.batch.accumulation, self.sdk)
        else:
            accumulate(model, self.settings, self.batch, self.sdk)
        self._set_feeds(model)
        warnings: List[str] = []
        if self.place.local_replicas > 1 and self.device.replicas_in_sync > 1:
            if hasattr(model, "set_replication_options"):
                model.set_replication_options(replicated_metric_reduction_method="MEAN")
            else:  # before SDK 3.1 fit() logs what the last replica of the instance measured
                warnings.append(_ONE_REPLICA.format(self.place.local_replicas))
        training = IpuTraining(self, model, stages, optimizer, measures, warnings)
        training.compile(events.updates_per_call * self.steps_per_update)
        return training

    def validate(
        self, training: IpuTraining, feed: Feed, samples: int, micro_size: int, progress: Progress
    ) -> Dict[str, float]:
        """The measures over the whole set, as one process would find them; one device call, which tells no progress."""
        self.device.round_as(self.device.no_rounding)
        steps = -(-samples // (micro_size * self.batch.replicas))
        more = -steps % self._validation_turn
        stream = padded(training.fed(feed), more * self.place.local_replicas)
        validator = self._validator(training, stream.element_spec, steps + more, micro_size)
        rows = validator.predict(stream.map(as_inputs), verbose=0)
        totals = self.collective.sum(rows.sum(axis=0, dtype=np.float64))
        weight = totals[-1] or 1.0  # nothing but zeros comes back from a device that makes its data up
        return {measure.name: float(totals[i] / weight) for i, measure in enumerate(training.measures)}

    @property
    def _validation_turn(self) -> int:
        """Validation takes a multiple of so many steps: what the published application accumulates in it."""
        return 2 * self.settings.pipeline.stages if self.settings.pipeline.splits else 1

    def _validator(self, training: IpuTraining, specs: Any, steps: int, micro_size: int) -> tf.keras.Model:
        if training.validator is None or training.validated_as != (steps, micro_size):
            with self.scope():
                model = make_validator(training.model, training.measures, specs)
                if self.settings.pipeline.splits:
                    divide(model, training.stages, self.settings, self._validation_turn, self.sdk)
                self._set_feeds(model)
                with in_32_bits():
                    model.compile(steps_per_execution=steps)
            training.validator, training.validated_as = model, (steps, micro_size)
        return training.validator

    def _set_feeds(self, model: tf.keras.Model) -> None:
        if self.settings.device.prefetch_depth is not None:
            model.set_infeed_queue_options(prefetch_depth=self.settings.device.prefetch_depth)
        if self.settings.device.outfeed_depth is not None:
            model.set_outfeed_queue_options(buffer_depth=self.settings.device.outfeed_depth)


class IpuTraining:
    """A model whose fit() counts the steps of one replica and logs the mean over all instances."""

    def __init__(
        self,
        backend: IpuBackend,
        model: tf.keras.Model,
        stages: Dict[str, int],
        optimizer: Any,
        measures: Sequence[Measure],
        warnings: Sequence[str],
    ) -> None:
        self.backend, self.model, self.stages = backend, model, stages
        self.optimizer, self.measures, self.warnings = optimizer, measures, warnings
        # Keras divides the loss by the replicas; as in the published application, none of the scale is lost by that.
        asked, in_sync = backend.settings.optimizer.loss_scaling, backend.device.replicas_in_sync
        self.scaling = LossScaling(asked * in_sync if asked != 1 else 1.0)
        self.loss_scale = float(self.scaling.scale)
        summed = backend.batch.replicas // in_sync
        adapt(optimizer, self.scaling, shares_of(model, backend.batch.replicas), summed)
        self.more: List[Any] = self.scaling.variables
        self.validator: Any = None
        self.validated_as: Tuple[int, int] = (0, 0)
        self.steps_per_execution = 0

    def compile(self, steps_per_execution: int) -> None:
        """Make one device call so many steps of a replica long."""
        loss, *others = self.measures
        metrics = "weighted_metrics" if self.backend.settings.training.remainder == "pad" else "metrics"
        with self.backend.scope(), in_32_bits():
            self.model.compile(
                optimizer=self.optimizer,
                loss=loss_of(loss, self.scaling),
                steps_per_execution=steps_per_execution,
                **{metrics: [MeanOf(measure, self._over_replicas) for measure in others]},
            )
            if not self.backend.device.reduces_metrics:
                log_loss_of_all(self.model, self._over_replicas)
        self.steps_per_execution = steps_per_execution

    def _over_replicas(self, value: Any) -> Any:
        """A metric of this replica as the mean over all, on the device: the host sees those of one replica only."""
        if self.backend.device.reduces_metrics:
            return value
        return self.backend.sdk.ipu.ops.cross_replica_ops.cross_replica_mean(value)

    def fit(self, feed: Feed, *, epochs: int, steps_per_epoch: int, callbacks: Sequence[Any]) -> None:
        """Make so many steps of a replica an epoch. The feed has no trace: that is refused where it is asked for."""
        place = self.backend.place
        self.backend.device.round_as(self.backend.device.training_rounding)
        self.backend.device.begin_after(int(self.optimizer.iterations))
        if steps_per_epoch != self.steps_per_execution:  # resumed inside a call, or with other events than prepared for
            self.compile(steps_per_epoch)
        self.model.fit(
            self.fed(feed),
            epochs=epochs,
            # The SDK's fit() counts micro-batches of the stream here, and divides by the replicas of this instance.
            steps_per_epoch=steps_per_epoch * place.local_replicas,
            callbacks=[MeanOverInstances(self.backend.collective, place.instances, self.loss_scale), *callbacks],
            verbose=0,
        )

    def fed(self, feed: Feed) -> tf.data.Dataset:
        """A stream as the IPU's feeds take it; where the device makes samples up, with zeros of their shapes."""
        stream = feed.stream
        if feed.make is not None:
            made = tf.function(feed.make).get_concrete_function(stream.element_spec[0]).structured_outputs
            zeros = [tf.zeros(spec.shape, spec.dtype) for spec in made]
            stream = stream.map(lambda inputs, targets, *rest: (*zeros, *rest))
        return as_fed(stream)
