"""What training.py measures, each in a process that is bound before it imports this: Keras, Horovod, one update."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import tensorflow as tf

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.selection import make_sources
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.host_events import host_events
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.topology.planning.popdist import read_place
from ipulaunch.workers.backends.collective import Alone, join, texts_of
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.backends.cpu.input_wait import InputWait
from ipulaunch.workers.backends.interface import Feed
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.binding import Binding
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import make_optimizer
from ipulaunch.workers.models.schedules import RateOverTime
from ipulaunch.workers.pasted_line import plan_of_pasted_line
from ipulaunch.workers.progress import Progress

OVERHEAD_ROUNDS = 7
RECORDED = 2000  # micro-batches, and updates, in a measurement of what recording their times costs
_BINDING = Binding("0", 1, "default")  # benchmarks are bound from outside


class Setup(NamedTuple):
    """One job, as a single instance with all replicas would do it."""

    job: Job
    plan: Plan
    source: Source

    @property
    def batch(self) -> Batch:
        return self.plan.batch

    @property
    def updates(self) -> int:
        return self.source.samples // self.batch.global_size

    def optimizer(self) -> Any:
        return make_optimizer(self.job.settings, self.batch, self.updates)

    def stream(self, batch: Batch, replicas: range, epochs: int) -> tf.data.Dataset:
        updates = range(epochs * (self.source.samples // batch.global_size))
        return training_stream(
            self.source, batch, replicas, shuffle=Shuffle(0), updates=updates, by_replica=True, threads=2
        )


def settled(name: str, settings: Sequence[str], replicas: int) -> Setup:
    overrides = [assignment(text, "--set") for text in settings]
    job = Job(name, "cpu", resolve(name, rehearsal=True, overrides=overrides).settings)
    batch = Batch(job.settings.training.micro_batch_size, replicas, 1)
    plan = plan_of_pasted_line(job, batch, read_place({}, replicas), _BINDING, lambda text: [text])
    source = make_sources(job, plan, 0, 1, meet=str, progress=lambda what, done, total: None)["train"]
    return Setup(job, plan, source)


class _Laps(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Starts the clock after the first epoch, which compiles."""

    start: float

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        if epoch == 1:
            self.start = time.perf_counter()


def plain_fit(setup: Setup, *, with_horovod: bool) -> Dict[str, float]:
    """The rate of Keras's own fit with the same global batch, in one process or divided by Horovod."""
    settings, epochs = setup.job.settings, setup.job.settings.training.num_epochs
    model = build_model(network_of(settings), lambda rate, layer: tf.keras.layers.Dropout(rate, name=layer))
    optimizer, laps = setup.optimizer(), _Laps()
    callbacks: List[Any] = [laps]
    count, number = 1, 0
    if with_horovod:
        optimizer, broadcast, count, number = _divided(optimizer)
        callbacks.append(broadcast)
    share = Batch(setup.batch.global_size // count, count, 1)
    loss = measures_of(settings)[0]
    model.compile(optimizer, loss=lambda targets, outputs: loss.of(targets, outputs))
    data = setup.stream(share, range(number, number + 1), epochs)
    model.fit(data, epochs=epochs, steps_per_epoch=setup.updates, callbacks=callbacks, verbose=0)
    samples = (epochs - 1) * setup.updates * setup.batch.global_size
    return {"samples_per_s": samples / (time.perf_counter() - laps.start)}


def _divided(optimizer: Any) -> Tuple[Any, Any, int, int]:
    """Horovod's optimizer and its first broadcast, the number of its processes, and which of them this is."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    with tf.keras.utils.custom_object_scope({"RateOverTime": RateOverTime}):  # it makes the optimizer anew
        optimizer = hvd.DistributedOptimizer(optimizer)
    return optimizer, hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.size(), hvd.rank()


def overhead(setup: Setup) -> Dict[str, float]:
    """An update in a bare loop, in seconds, and what all of fit and the records add to it, as a part of that.

    All instances measure together: both loops reduce gradients, and between updates fit agrees on whether to stop.
    """
    job, batch, updates = setup.job, setup.batch, setup.updates
    place = read_place(os.environ)
    collective = join(place.instance, place.instances)
    plan = plan_of_pasted_line(job, batch, place, _BINDING, lambda text: texts_of(collective, text))
    training = job.settings.training
    events, _ = host_events(1, updates, training.logs_per_epoch, training.ckpts_per_epoch)
    backend = CpuBackend(job.settings, plan, place.instance, collective)
    model = build_model(network_of(job.settings), backend.dropout)
    trained = backend.prepare(model, setup.optimizer(), measures_of(job.settings), events)
    update = trained.make_train_function()
    update(iter(setup.stream(batch, backend.replicas, 1)))  # compiles
    bare: List[float] = []
    added: List[float] = []
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(Path(directory))
        records, stop = Records(run, place.instance), StopRequest(run, place.instance, collective)
        instance = Instance(job, plan, place.instance, backend, run, records, 1, stop)
        for _ in range(OVERHEAD_ROUNDS):
            stream = setup.stream(batch, backend.replicas, 1)
            start = time.perf_counter()
            data = iter(stream)  # within the measured time, as in fit
            for _ in range(updates):
                update(data)
            bare.append(time.perf_counter() - start)
            samples = setup.source.samples
            progress = Progress(instance, events, lambda row: None, lambda progress: None, samples)
            feed = Feed(setup.stream(batch, backend.replicas, 1))
            start = time.perf_counter()
            trained.fit(feed, epochs=1, steps_per_epoch=updates, callbacks=[progress])
            added.append((time.perf_counter() - start) / bare[-1] - 1)
        records.done({})
    return {"bare": statistics.median(bare) / updates, "added": statistics.median(added)}


def recording(setup: Setup) -> Dict[str, float]:
    """The processor time of an update, and of recording its times: on one instance, in seconds.

    The difference of two trainings would be lost in their noise, so what records is called by itself.
    """
    batch, updates = setup.batch, setup.updates
    events, _ = host_events(1, updates, setup.job.settings.training.logs_per_epoch, Fraction(0))
    backend = CpuBackend(setup.job.settings, setup.plan, 0, Alone())
    model = build_model(network_of(setup.job.settings), backend.dropout)
    trained = backend.prepare(model, setup.optimizer(), measures_of(setup.job.settings), events)
    update = trained.make_train_function()
    data = iter(setup.stream(batch, backend.replicas, 2))
    update(data)  # compiles
    start = time.process_time()
    for _ in range(updates):
        update(data)
    whole = (time.process_time() - start) / updates
    element = next(iter(setup.stream(batch, backend.replicas, 1)))
    asking = [_cost_of_asking(element, InputWait().next) - _cost_of_asking(element, next) for _ in range(5)]
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(Path(directory))
        records, stop = Records(run, 0), StopRequest(run, 0, Alone())
        instance = Instance(setup.job, setup.plan, 0, backend, run, records, 1, stop)
        start = time.process_time()
        for number in range(RECORDED):
            backend.times.turn_to("device")
            backend.times.turn_to("other")
            for part in ("logging", "checkpoint", "reduction", "reduction"):
                with backend.times.part(part):
                    pass
            if events.logs_at(number % updates + 1):
                instance.record_times(number)
        between = (time.process_time() - start) / RECORDED
        records.done({})
    rows = len(backend.replicas) * batch.accumulation
    return {"update": whole, "recording": max(0.0, statistics.median(asking)) * rows + between}


def _cost_of_asking(element: Any, ask: Any) -> float:
    """The processor time of taking a micro-batch out of a stream that always has one."""

    @tf.function  # type: ignore[untyped-decorator, unused-ignore]
    def take(stream: Any) -> Any:
        total = tf.constant(0)
        for _ in tf.range(RECORDED):
            inputs, *_ = ask(stream)
            total += tf.size(inputs)
        return total

    stream = iter(tf.data.Dataset.from_tensors(element).repeat())
    take(stream)
    start = time.process_time()
    take(stream)
    return (time.process_time() - start) / RECORDED
