"""One instance of a run: its job, its part of the plan, and where it writes."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

import tensorflow as tf

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.data_pipeline.sources.normalise import as_sent
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.workers.backends.interface import Backend
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest


class Instance(NamedTuple):
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
    def batch(self) -> Batch:
        return self.plan.batch

    @property
    def replicas(self) -> range:
        """Its replicas, among those of all instances."""
        return self.plan.replicas_of(self.index)

    @property
    def writes(self) -> bool:
        """Whether it writes what belongs to the run as a whole."""
        return self.index == 0

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
