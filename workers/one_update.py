"""A weight update of one instance alone, on samples that are in memory: what a device computes, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

from ipulaunch.configs.runs.job import Job
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.normalise import as_sent
from ipulaunch.data_pipeline.sources.selection import make_sources
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology.planning.host_events import events_of
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.selection import make_backend, make_devices
from ipulaunch.workers.state.training_state import prepare_training


def make_update(job: Job, plan: Plan, index: int, threads: int) -> Any:
    """A function that makes a weight update of an instance, on samples that are in memory."""
    settings, batch = job.settings, plan.batch
    data = dataclasses.replace(
        settings.data,
        directory=None,
        stage_dir=None,
        bad_records="fail",
        synthetic_data="cpu",
        n_train=batch.global_size,
    )
    settings = dataclasses.replace(settings, data=data)
    job = job._replace(settings=settings)
    make_devices(job)
    backend = make_backend(job, plan, index, Alone())
    events, _ = events_of(settings.training, data.n_train, batch)
    trained, _ = prepare_training(backend, events, native_half=False)
    made = make_sources(job, plan, index, threads, meet=str, progress=lambda *done: None)
    stream = training_stream(
        made["train"], batch, backend.replicas, shuffle=Shuffle(0), updates=range(1), by_replica=True, threads=threads
    )
    inputs = iter(as_sent(stream, settings, threads).cache().repeat())
    function: Any = trained.make_train_function()  # type: ignore[attr-defined]
    return lambda: function(inputs)
