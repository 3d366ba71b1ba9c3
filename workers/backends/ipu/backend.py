"""The IPU backend: PopDist, the SDK's distribution strategies and its Keras. For Poplar SDK 2.6 to 3.4."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.host_events import HostEvents
from ipulaunch.topology.networks.splits import stage_ends
from ipulaunch.topology.planning.ipu_refusals import ipus_needed, refuse
from ipulaunch.topology.planning.popdist import Place
from ipulaunch.topology.planning.sdk_refusals import METRIC_REDUCTION
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.interface import Backend, Feed, Progress
from ipulaunch.workers.backends.ipu.device import IpuDevice
from ipulaunch.workers.backends.ipu.environment import engine_options, flags
from ipulaunch.workers.backends.ipu.feeds import as_fed
from ipulaunch.workers.backends.ipu.hosts import OverHosts
from ipulaunch.workers.backends.ipu.loss_scaling import UpdateCount, follow_gradients, state_of
from ipulaunch.workers.backends.ipu.measures import MeanOf, WithoutLossScale, log_loss_of_all, loss_of
from ipulaunch.workers.backends.ipu.model import accumulate, divide, for_ipus, in_32_bits, stage_numbers
from ipulaunch.workers.backends.ipu.sdk import load_sdk
from ipulaunch.workers.backends.ipu.statistics import adapt, learnt_statistics, shares_of
from ipulaunch.workers.backends.ipu.validation import as_inputs, make_validator, padded
from ipulaunch.workers.models.loss_scaling import LossScaling
from ipulaunch.workers.models.measures import Measure
from ipulaunch.workers.models.variables import read_variable


class IpuBackend(Backend["IpuTraining"]):
    """Builds, trains and validates a model on the IPUs of this instance."""

    runs_by_replica = False

    def __init__(self, settings: WorkloadSettings, batch: Batch, place: Place) -> None:
        self.steps_per_update = batch.accumulation
        os.environ.update(flags(settings, os.environ))
        self.sdk = load_sdk()
        # A process that poprun did not start takes the IPUs that its model needs.
        is_placed = self.sdk.popdist.isPopdistEnvSet()
        refuse(settings, batch, place.ipus_per_replica if is_placed else ipus_needed(settings.pipeline))
        self.device = IpuDevice(self.sdk, settings, place, is_placed, network_of(settings).drops_units)
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
        self._set_reduction(model)
        training = IpuTraining(self, model, stages, optimizer, measures)
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

    def _set_reduction(self, model: tf.keras.Model) -> None:
        """Where asked, reduce what is logged on the device in each step; PopDist's Keras does so once in a call."""
        if not self.settings.device.accelerator_side_reduction:
            return
        if hasattr(model, "set_replication_options"):
            model.set_replication_options(replicated_metric_reduction_method="MEAN")
        else:
            raise METRIC_REDUCTION.missing()

    def _set_feeds(self, model: tf.keras.Model) -> None:
        if self.settings.device.prefetch_depth is not None:
            model.set_infeed_queue_options(prefetch_depth=self.settings.device.prefetch_depth)
        if self.settings.device.outfeed_depth is not None:
            model.set_outfeed_queue_options(buffer_depth=self.settings.device.outfeed_depth)


class IpuTraining:
    """A model whose fit() counts the steps of one replica. PopDist's metrics are those of all replicas already."""

    def __init__(
        self,
        backend: IpuBackend,
        model: tf.keras.Model,
        stages: Dict[str, int],
        optimizer: Any,
        measures: Sequence[Measure],
    ) -> None:
        self.backend, self.model, self.stages = backend, model, stages
        self.optimizer, self.measures = optimizer, measures
        chosen, shares = backend.settings.optimizer, shares_of(model, backend.batch.replicas)
        # Keras divides the loss by the replicas; as in the published application, none of the scale is lost by that.
        in_sync = backend.device.replicas_in_sync
        is_scaled = chosen.loss_scaling != 1 and not chosen.auto_loss_scaling
        self.scaling = LossScaling(chosen.loss_scaling * in_sync if is_scaled else 1.0)
        adapt(optimizer, self.scaling, shares, summed=backend.batch.replicas // in_sync)
        self.compiled_optimizer, self.more = optimizer, []  # type: Any, List[Any]
        if chosen.auto_loss_scaling:
            with backend.scope():
                self.compiled_optimizer = follow_gradients(optimizer, chosen.loss_scaling, shares)
            self.more = state_of(self.compiled_optimizer)
        self.validator: Any = None
        self.validated_as: Tuple[int, int] = (0, 0)
        self.steps_per_execution = 0

    def compile(self, steps_per_execution: int) -> None:
        """Make one device call so many steps of a replica long."""
        loss, *others = self.measures
        metrics = "weighted_metrics" if self.backend.settings.training.remainder == "pad" else "metrics"
        with self.backend.scope(), in_32_bits():
            self.model.compile(
                optimizer=self.compiled_optimizer,
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
        self.backend.device.begin_after(int(read_variable(self.optimizer.iterations)))
        if steps_per_epoch != self.steps_per_execution:  # resumed inside a call, or with other events than prepared for
            self.compile(steps_per_epoch)
        self.model.fit(
            self.fed(feed),
            epochs=epochs,
            # The SDK's fit() counts micro-batches of the stream here, and divides by the replicas of this instance.
            steps_per_epoch=steps_per_epoch * place.local_replicas,
            callbacks=[*self._own_callbacks(), *callbacks],
            verbose=0,
        )

    def _own_callbacks(self) -> List[Any]:
        """What comes before the callbacks that read logs and state."""
        if self.compiled_optimizer is self.optimizer:
            return [WithoutLossScale(float(read_variable(self.scaling.scale)))]
        return [UpdateCount(self.optimizer, self.steps_per_execution // self.backend.steps_per_update)]

    def fed(self, feed: Feed) -> tf.data.Dataset:
        """A stream as the IPU's feeds take it; where the device makes samples up, with zeros of their shapes."""
        stream = feed.stream
        if feed.make is not None:
            made = tf.function(feed.make).get_concrete_function(stream.element_spec[0]).structured_outputs
            zeros = [tf.zeros(spec.shape, spec.dtype) for spec in made]
            stream = stream.map(lambda inputs, targets, *rest: (*zeros, *rest))
        return as_fed(stream)
