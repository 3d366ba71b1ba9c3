"""One instance's part of a training run, from top to bottom."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import random
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import JobError
from ipulaunch.configs.job import Job
from ipulaunch.configs.run_directory import RunDirectory, write_whole
from ipulaunch.data_pipeline.cosmoflow import CosmoflowRecords, find_files
from ipulaunch.data_pipeline.normalise import density
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.source import Source, data_errors
from ipulaunch.data_pipeline.staging import stage
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.data_pipeline.synthetic import SyntheticCosmoflow
from ipulaunch.topology import Batch
from ipulaunch.topology.batch import updates_per_epoch
from ipulaunch.topology.popdist import Place
from ipulaunch.workers import checkpoints
from ipulaunch.workers.measures import MEAN_ABSOLUTE_ERROR, MEAN_SQUARED_ERROR
from ipulaunch.workers.models.cosmoflow import build_model
from ipulaunch.workers.optimizers import make_optimizer
from ipulaunch.workers.records import Records

_EVENT_INTERVAL_S = 0.2  # a display shows no more; a million updates need not leave a million lines


def train(
    job: Job, batch: Batch, place: Place, backend: Any, run: RunDirectory, records: Records, threads: int
) -> Dict[str, Any]:
    """Data, model, fit, records. Returns the summary of the run, the same on every instance."""
    settings, training = job.settings, job.settings.training
    _seed(training.seed)

    train_source, valid_source = _sources(job, backend.collective, place, records, threads)
    updates = updates_per_epoch(train_source.samples, batch, training.remainder)
    stream = training_stream(
        train_source,
        batch,
        place,
        shuffle=Shuffle(training.seed, settings.data.shuffle_block, settings.data.shuffle_window),
        epochs=training.num_epochs,
        by_replica=backend.runs_by_replica,
        threads=threads,
        remainder=training.remainder,
        traced=training.trace_samples,
    )
    if settings.data.host_preprocess:
        stream = _normalised(stream, settings.data)

    with backend.scope():
        model = build_model(settings, backend.dropout)
        optimizer = make_optimizer(settings.optimizer, batch.replicas)
        trained = backend.prepare(model, optimizer, (MEAN_SQUARED_ERROR, MEAN_ABSOLUTE_ERROR), updates)

    def validate() -> Dict[str, float]:
        if not training.validation:
            return {}
        held_out = validation_stream(valid_source, batch, place, threads=threads)
        if settings.data.host_preprocess:
            held_out = _normalised(held_out, settings.data)
        return {
            f"val_{name}": value for name, value in backend.validate(trained, held_out, valid_source.samples).items()
        }

    saved: List[str] = []

    def save(position: Dict[str, int]) -> None:
        if training.checkpoints and place.instance == 0:
            path = checkpoints.save(run.checkpoints, model, optimizer, position)
            saved.append(str(path.relative_to(run.path)))
            records.event("checkpoint", path=saved[-1], **position)

    left_out = max(0, train_source.samples - updates * batch.global_size)
    records.event(
        "training", epochs=training.num_epochs, updates_per_epoch=updates, left_out=left_out, batch=batch.formula
    )
    progress = _Progress(records, batch, place, run, backend.steps_per_update, validate, save)
    steps = updates * backend.steps_per_update
    with data_errors(train_source, valid_source), _tracing(trained, training, run, place):
        trained.fit(stream, epochs=training.num_epochs, steps_per_epoch=steps, callbacks=[progress], verbose=0)
    for source in (train_source, valid_source):
        for error in source.bad.values():
            records.event("replaced", message=error.message)

    replaced = backend.collective.sum(np.array([len(train_source.bad) + len(valid_source.bad)]))
    summary = {
        **_summary(progress, batch, place, backend),
        "replaced_samples": int(replaced[0]),
        "checkpoint": saved[-1] if saved else "",
    }
    if place.instance == 0:
        write_whole(run.summary, json.dumps(summary, indent=1) + "\n")
    return summary


def _normalised(stream: tf.data.Dataset, data: Any) -> tf.data.Dataset:
    return stream.map(lambda counts, *rest: (density(counts, data.normalise, tf.float32), *rest))


@contextlib.contextmanager
def _tracing(model: Any, training: Any, run: RunDirectory, place: Place) -> Iterator[None]:
    """While inside, every micro-batch leaves a line per sample in this instance's samples.csv."""
    if not training.trace_samples:
        yield
        return
    with run.samples(place.instance).open("w", encoding="ascii") as file:
        file.write("epoch,update,step,replica,sample\n")

        def trace(epoch: Any, update: Any, step: Any, replica: Any, ids: Any) -> None:
            file.writelines(f"{epoch},{update},{step},{replica},{number}\n" for number in ids)

        model.trace = trace
        yield


def _seed(seed: int) -> None:
    """Start the generators that initial weights come from; some Keras versions draw seeds from Python's own."""
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)


def _sources(job: Job, collective: Any, place: Place, records: Records, threads: int) -> Tuple[Source, Source]:
    data, seed = job.settings.data, job.settings.training.seed
    if data.data_dir is None:
        return SyntheticCosmoflow(data, "train", seed), SyntheticCosmoflow(data, "validation", seed)
    if data.stage_dir is not None:
        _stage(Path(data.data_dir), Path(data.stage_dir), place, records)
        collective.first("staged")  # by the other instances of this host too
        data = dataclasses.replace(data, data_dir=data.stage_dir)

    def read() -> Tuple[Source, Source]:
        return CosmoflowRecords(data, "train", threads=threads), CosmoflowRecords(data, "validation", threads=threads)

    # The first instance of each host builds the index, if there is none; the others find it.
    sources = read() if place.local_index == 0 else None
    collective.first("indexed")
    return sources or read()


def _stage(source: Path, target: Path, place: Place, records: Records) -> None:
    files = [file for split in ("train", "validation") for file in find_files(source, split)]

    def progress(done: int, total: int) -> None:
        records.event("staging", done=done, total=total)

    stage(files, source, target, index=place.local_index, instances=place.local_instances, progress=progress)


class _Progress(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Records updates and epochs; validates and saves between epochs."""

    def __init__(
        self,
        records: Records,
        batch: Batch,
        place: Place,
        run: RunDirectory,
        steps_per_update: int,
        validate: Callable[[], Dict[str, float]],
        save: Callable[[Dict[str, int]], None],
    ) -> None:
        super().__init__()
        self.records, self.batch, self.place, self.run = records, batch, place, run
        self.steps_per_update, self.validate, self.save = steps_per_update, validate, save
        self.updates = 0
        self.train_s = 0.0
        self.warm_updates, self.warm_s = 0, 0.0  # without the first update, which compiles
        self.last_event = 0.0
        self.metrics: Dict[str, float] = {}
        self.sums: Dict[str, float] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.sums, self.epoch_updates, self.epoch_start = {}, 0, time.perf_counter()
        self.lap = self.epoch_start

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        now = time.perf_counter()
        new = (step + 1) // self.steps_per_update - self.epoch_updates  # since the last return to the host
        if self.updates:
            self.warm_updates, self.warm_s = self.warm_updates + new, self.warm_s + now - self.lap
        self.updates, self.epoch_updates, self.lap = self.updates + new, self.epoch_updates + new, now
        for name, value in (logs or {}).items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value) * new
        if now - self.last_event >= _EVENT_INTERVAL_S:
            self.last_event = now
            self.records.event("update", update=self.updates, samples_per_s=self.rate(), **_floats(logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seconds = time.perf_counter() - self.epoch_start
        self.train_s += seconds
        means = {name: total / self.epoch_updates for name, total in self.sums.items()}
        if not all(map(math.isfinite, means.values())):
            raise JobError(
                f"the loss is not finite any more after update {self.updates}: {means}",
                hint="lower the learning rate; the last good state is the newest checkpoint",
            )
        self.metrics = {**means, **self.validate()}
        row = {"epoch": epoch + 1, "update": self.updates, **self.metrics, "train_s": seconds}
        self.records.event("epoch", samples_per_s=self.rate(), **row)
        if self.place.instance == 0:
            with self.run.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        self.save({"epoch": epoch + 1, "update": self.updates})

    def rate(self) -> float:
        """Samples per second of this instance's own replicas, compilation apart."""
        updates, seconds = self.warm_updates, self.warm_s
        if not updates:  # there was only the one that compiles
            updates, seconds = self.updates, time.perf_counter() - self.epoch_start
        return updates * self.batch.global_size / self.place.instances / seconds


def _floats(logs: Any) -> Dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items()}


def _summary(progress: _Progress, batch: Batch, place: Place, backend: Any) -> Dict[str, Any]:
    rates = np.zeros(place.instances)
    rates[place.instance] = progress.rate()
    rates = backend.collective.sum(rates)
    return {
        "updates": progress.updates,
        "samples": progress.updates * batch.global_size,
        "train_s": progress.train_s,
        "samples_per_s": float(rates.sum()),
        "samples_per_s_by_instance": [float(rate) for rate in rates],
        "metrics": progress.metrics,
    }
