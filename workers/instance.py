"""One instance of a run: what it does, where it is, and where it writes."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.data_pipeline.sources.normalise import as_sent
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.popdist import Place
from ipulaunch.workers.backends.interface import Backend
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest


class Instance(NamedTuple):
    """What every part of the work needs to know."""

    job: Job
    batch: Batch
    place: Place
    backend: Backend[Any]
    run: RunDirectory
    records: Records
    threads: int  # of the input pipeline
    stop: StopRequest

    @property
    def settings(self) -> Any:
        return self.job.settings

    @property
    def writes(self) -> bool:
        """Whether it writes what belongs to the run as a whole."""
        return self.place.instance == 0

    def sent(self, stream: tf.data.Dataset) -> tf.data.Dataset:
        """A stream with its inputs as they leave the host."""
        return as_sent(stream, self.settings, self.threads)
