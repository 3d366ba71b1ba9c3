"""One instance of a run: its job, its part of the plan, and where it writes."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Dict

import tensorflow as tf

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import Times, WarningEvent
from ipulaunch.configs.runs.job import Job
from ipulaunch.data_pipeline.order import Shuffle, shuffle_of, validation_batch
from ipulaunch.data_pipeline.sources.normalise import as_sent
from ipulaunch.topology import Batch
from ipulaunch.topology.capacity.energy import energy_in
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.workers.backends.interface import Backend
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest


@dataclass(frozen=True)
class Instance:
    """What every part of the work needs to know."""

    job: Job
    plan: Plan
    index: int  # in the plan
    backend: Backend[Any]
    run: RunDirectory
    records: Records
    threads: int  # of the input pipeline
    stop: StopRequest

    @property
    def settings(self) -> Any:
        return self.job.settings

    @property
    def shuffle(self) -> Shuffle:
        """The order in which the training takes its samples."""
        return shuffle_of(self.settings, self.plan)

    @property
    def batch(self) -> Batch:
        return self.plan.batch

    @property
    def validation_batch(self) -> Batch:
        return validation_batch(self.settings, self.batch)

    @property
    def writes(self) -> bool:
        """Whether it writes what belongs to the run as a whole."""
        return self.index == 0

    def costs(self, seconds: float) -> Dict[str, Any]:
        """What the summary of a run says about the energy of its IPUs; nothing where it has attached none."""
        if self.job.is_rehearsal or self.settings.device.compile_only:
            return {}
        return {"energy": energy_in(seconds, self.plan).as_data()}

    def warn(self, message: str) -> None:
        """Record a warning."""
        self.records.event(WarningEvent(message))

    def record_times(self, update: int) -> None:
        """Record what was done since the last time."""
        self.records.event(Times(update, self.backend.times.lap()))

    def sent(self, stream: tf.data.Dataset) -> tf.data.Dataset:
        """A stream with its inputs as they leave the host."""
        return as_sent(stream, self.settings, self.threads)


def make_instance(
    job: Job, plan: Plan, index: int, backend: Backend[Any], run: RunDirectory, records: Records, threads: int
) -> Instance:
    """An instance that listens to the signals which ask for a stop."""
    stop = StopRequest(run, index, backend.collective)
    stop.listen(*(signal.Signals[f"SIG{name}"] for name in job.settings.survival.stop_signals))
    return Instance(job, plan, index, backend, run, records, threads, stop)
