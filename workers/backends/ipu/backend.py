"""The IPU backend: PopDist, the SDK's distribution strategies and its Keras. For Poplar SDK 2.6 to 3.4."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ContextManager, Dict, Sequence

import tensorflow as tf

from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.topology.planning.refusals import ipus_needed, refuse_on_ipus
from ipulaunch.workers.backends.interface import Backend, Estimators, Feed, Progress
from ipulaunch.workers.backends.ipu.device import IpuDevice
from ipulaunch.workers.backends.ipu.environment import engine_options, flags
from ipulaunch.workers.backends.ipu.export import export_model
from ipulaunch.workers.backends.ipu.model import shape_model
from ipulaunch.workers.backends.ipu.sdk import load_sdk
from ipulaunch.workers.backends.ipu.training import IpuTraining
from ipulaunch.workers.models.measures import Measure


class IpuBackend(Backend[IpuTraining]):
    """Builds, trains and validates a model on the IPUs of this instance."""

    runs_by_replica = False

    def begin(self) -> None:
        """Load the SDK and attach to the IPUs."""
        settings, plan = self.settings, self.plan
        self.steps_per_update = self.batch.accumulation
        os.environ.update(flags(settings, os.environ))
        self.sdk = load_sdk()
        # A process that poprun did not start takes the IPUs that its model needs.
        is_placed = self.sdk.popdist.isPopdistEnvSet()
        refuse_on_ipus(settings, self.batch, plan.ipus_per_replica if is_placed else ipus_needed(settings.pipeline))
        self.device = IpuDevice(self.sdk, settings, plan, self.index, is_placed=is_placed)

    def report_to(self, directory: Path) -> None:
        """Write there what --profile asks for; a run directory is made when the instances have found each other.

        The device is configured anew: what it finds in its cache of executables depends on the options it sees then.
        """
        if self.settings.device.profile:
            directory.mkdir(parents=True, exist_ok=True)
            os.environ.update(engine_options(directory, os.environ))
            self.device.attach()

    def scope(self) -> ContextManager[None]:
        """Models are made inside it: only those can run on IPUs."""
        return self.device.scope()

    def dropout(self, rate: float, name: str) -> Any:
        return tf.keras.layers.Dropout(rate, name=name)

    def prepare(
        self, model: tf.keras.Model, optimizer: Any, measures: Sequence[Measure], events: HostEvents
    ) -> IpuTraining:
        """The model, ready for fit(); the first measure is the loss. The weights are those of instance 0 on all."""
        model, stages = shape_model(model, self.settings, self.batch, self.sdk)
        training = IpuTraining(self.settings, self.device, model, stages, optimizer, measures)
        training.compile(events.updates_per_call * self.steps_per_update)
        return training

    def validate(
        self, training: IpuTraining, feed: Feed, samples: int, micro_size: int, progress: Progress
    ) -> Dict[str, float]:
        """The measures over the whole set, as one process would find them; in one device call, so without progress."""
        totals = self.collective.sum(training.sums(feed, samples, micro_size))
        weight = totals[-1] or 1.0  # nothing but zeros comes back from a device that makes its data up
        return {measure.name: float(totals[i] / weight) for i, measure in enumerate(training.measures)}

    def export(self, model: tf.keras.Model, spec: tf.TensorSpec, directory: Path, iterations: int) -> None:
        """Compile the model and write what the SDK's TensorFlow Serving runs."""
        export_model(model, spec, directory, iterations, self.settings, self.device)

    def estimators(self) -> Estimators:
        from ipulaunch.workers.backends.ipu.estimators import IpuEstimators

        return IpuEstimators(self, self.device)
