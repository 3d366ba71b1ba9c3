"""A run with an Estimator: training from its newest checkpoint to the last update, then evaluation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError, JobError, NotReadyError, SettingsError
from ipulaunch.configs.estimators import PLAIN
from ipulaunch.data_pipeline.order import Shuffle, validation_ids
from ipulaunch.data_pipeline.source import Source
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.batch import updates_per_epoch
from ipulaunch.topology.host_events import HostEvents
from ipulaunch.topology.rules import divisors
from ipulaunch.workers.estimators.hooks import Outside, Save, Watch
from ipulaunch.workers.estimators.metrics import over_instances
from ipulaunch.workers.estimators.model_dir import ModelDir, Newest
from ipulaunch.workers.history import History
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.measures import measures_of
from ipulaunch.workers.optimizers import scaled_rate
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.training import plan_events


def run_estimator(at: Instance, sources: Mapping[str, Source], history: Optional[History]) -> Dict[str, Any]:
    """Train, evaluate, or both; returns the summary."""
    _require_estimators()
    training = at.job.settings.training
    if at.job.settings.api == PLAIN and at.batch.replicas > 1:
        raise SettingsError(
            f"--api estimator trains one replica, and there are {at.batch.replicas}",
            hint="use --api replica-estimator, or --num-replicas 1",
        )
    side, directory, outside = _make_side(at), ModelDir(at), Outside()
    events = _in_calls(at, plan_events(at, sources["train"]))
    summary: Dict[str, Any] = {"metrics": {}}
    try:
        if training.training:
            summary = _train(at, side, directory, sources["train"], events, history, outside)
        if training.validation:
            found = _evaluate(at, side, directory, sources["validation"], events, history)
            summary = {**summary, **found, "metrics": {**summary["metrics"], **found["metrics"]}}
    finally:
        outside.close()
    return summary


def _require_estimators() -> None:
    if not hasattr(tf, "estimator") or not hasattr(tf.estimator, "Estimator"):
        raise NotReadyError(
            f"TensorFlow {tf.__version__} has no Estimators any more: 2.15 was the last that had them",
            hint="use TensorFlow 2.15 or the Poplar SDK's, or train with Keras: --api keras, --no-use-estimator",
        )


def _make_side(at: Instance) -> Any:
    """What makes Estimators for the backend of this job."""
    if at.job.backend == "ipu":
        from ipulaunch.workers.backends.ipu_estimator import IpuEstimators

        return IpuEstimators(at)
    from ipulaunch.workers.estimators.cpu import CpuEstimators

    return CpuEstimators(at)


def _in_calls(at: Instance, events: HostEvents) -> HostEvents:
    """The events with device calls as long as was asked for; all of them must fall between two calls."""
    asked, accumulation = at.job.settings.estimator.batches_per_step, at.batch.accumulation
    if asked is None or not at.job.settings.training.training:
        return events
    longest = events.updates_per_call * accumulation
    if asked % accumulation or longest % asked:
        possible = [n * accumulation for n in divisors(events.updates_per_call)]
        near = min(possible, key=lambda steps: abs(steps - asked))
        raise SettingsError(
            f"--batches-per-step is {asked}, and the host hears of the training every {longest} micro-batches of a"
            f" replica, {accumulation} to an update",
            hint=f"use --batches-per-step {near}, or other --logs-per-epoch and --ckpts-per-epoch",
        )
    return events._replace(updates_per_call=asked // accumulation)


def _config(at: Instance, directory: str) -> Dict[str, Any]:
    """What every RunConfig is given: no checkpoints or summaries beside ours, and the threads of this instance."""
    training, threading = at.job.settings.training, tf.config.threading
    return {
        "model_dir": directory,
        "tf_random_seed": training.seed,
        "save_summary_steps": None,
        "save_checkpoints_steps": None,
        "save_checkpoints_secs": None,
        "log_step_count_steps": None,
        "keep_checkpoint_max": training.keep_checkpoints or 0,
        "session_config": tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=threading.get_intra_op_parallelism_threads(),
            inter_op_parallelism_threads=threading.get_inter_op_parallelism_threads(),
        ),
    }


def _train(
    at: Instance,
    side: Any,
    directory: ModelDir,
    source: Source,
    events: HostEvents,
    history: Optional[History],
    outside: Outside,
) -> Dict[str, Any]:
    training, data = at.job.settings.training, at.job.settings.data
    shuffle = Shuffle(training.seed, data.shuffle_block, data.shuffle_window)
    rate = scaled_rate(at.job.settings.optimizer, at.batch)
    newest = directory.newest()
    directory.check(_identity(at, source, shuffle), newest, events.total_updates)

    def log(row: Dict[str, Any]) -> None:
        if history is not None:
            history.add({**row, "learning_rate": rate})

    whole = updates_per_epoch(source.samples, at.batch, training.remainder) * at.batch.global_size
    progress = Progress(at, events, log, lambda progress: None)
    start = newest.update if newest else 0
    progress.continue_from(start, {"updates": 0, "sums": {}})
    if newest is not None:
        at.records.event("resumed", path=newest.path, update=start)
    at.records.event(
        "training",
        api=at.job.settings.api,
        epochs=events.epochs,
        updates_per_epoch=events.updates_per_epoch,
        updates_per_call=events.updates_per_call,
        first_update=start,
        samples=source.samples,
        left_out=max(0, source.samples - whole),
        batch=at.batch.formula,
    )
    if start < events.total_updates:
        if start % events.updates_per_call:
            raise SettingsError(
                f"{newest.path if newest else ''} stopped after update {start}, inside a device call of"
                f" {events.updates_per_call} updates",
                hint="continue with the --batches-per-step it was begun with",
            )

        def feed() -> tf.data.Dataset:
            stream = training_stream(
                source, at.batch, at.place, shuffle=shuffle, updates=range(start, events.total_updates),
                by_replica=at.backend.runs_by_replica, threads=at.threads, remainder=training.remainder,
            )  # fmt: skip
            return side.training_feed(at.sent(stream))

        per_call = events.updates_per_call
        runs = per_call // side.updates_per_run(per_call)
        watch = Watch(at, progress, runs, lambda loss: side.mean_loss(loss, per_call), outside)
        hooks = [watch]
        if at.writes and events.checkpoint_every:
            hooks.append(Save(at, directory.path, events))
        config = _config(at, directory.prepared(newest))
        estimator = side.make(config, per_call * at.batch.accumulation, is_training=True)
        try:
            estimator.train(feed, hooks=hooks, max_steps=events.total_updates * at.batch.accumulation)
        except tf.estimator.NanLossDuringTrainingError as error:
            raise JobError(
                f"the loss is not finite any more after update {progress.updates}", hint="lower the learning rate"
            ) from error
        if watch.stopped is not None:
            raise watch.stopped
    return _summary(at, progress, directory)


def _identity(at: Instance, source: Source, shuffle: Shuffle) -> Dict[str, Any]:
    """What must not change between a training and the one that continues it."""
    return {
        "workload": at.job.workload,
        "model": at.job.settings.model.name,
        "samples": source.samples,
        "global_batch": at.batch.global_size,
        "accumulation": at.batch.accumulation,
        "remainder": at.job.settings.training.remainder,
        **shuffle._asdict(),
    }


def _summary(at: Instance, progress: Progress, directory: ModelDir) -> Dict[str, Any]:
    rates = np.zeros(at.place.instances)
    rates[at.place.instance] = progress.rate()
    rates = at.backend.collective.sum(rates)
    newest = directory.newest()
    return {
        "updates": progress.updates,
        "samples": progress.updates * at.batch.global_size,
        "train_s": progress.train_s,
        "samples_per_s": float(rates.sum()),
        "samples_per_s_by_instance": [float(rate) for rate in rates],
        "metrics": progress.metrics,
        "checkpoint": newest.path if newest else "",
    }


def _evaluate(
    at: Instance, side: Any, directory: ModelDir, source: Source, events: HostEvents, history: Optional[History]
) -> Dict[str, Any]:
    """Evaluate the newest checkpoint over the whole validation set."""
    training, measures = at.job.settings.training, measures_of(at.job.settings)
    newest: Optional[Newest] = directory.newest()
    if newest is None:
        raise DataError(f"there is no checkpoint in {directory.path}", hint="train first, with the same --model-dir")
    batch = Batch(training.validation_micro_batch_size or at.batch.micro_size, at.batch.replicas, 1)
    steps = -(-source.samples // batch.global_size)
    whole = side.evaluation_steps(steps)

    def feed() -> tf.data.Dataset:
        stream = at.sent(validation_stream(source, batch, at.place, threads=at.threads))
        return side.evaluation_feed(stream, batch.micro_size, (whole - steps) * at.place.local_replicas)

    config = _config(at, directory.prepared(newest))
    estimator = side.make(config, whole, is_training=False)
    found = estimator.evaluate(feed, steps=whole, checkpoint_path=newest.path)
    weight = float(validation_ids(source.samples, batch, at.place)[1].sum())
    values = over_instances(found, weight, measures, at.backend.collective)
    row: Dict[str, Any] = {"checkpoint": Path(newest.path).name, "update": newest.update}
    row["epoch"] = round(newest.update / events.updates_per_epoch, 4) if training.training else None
    row.update({f"val_{name}": value for name, value in values.items()})
    at.records.event("validation", **row)
    if history is not None:
        history.add(row)
    if not all(map(math.isfinite, values.values())):
        raise JobError("a validation loss is not finite", hint="lower the learning rate")
    return _judged(row, training.target_accuracy)


def _judged(row: Dict[str, Any], target: Optional[float]) -> Dict[str, Any]:
    found: Dict[str, Any] = {"metrics": {name: row[name] for name in row if name.startswith("val_")}, "best": row}
    if target is not None:
        found["target"] = {"value": target, "reached_by": row if row.get("val_accuracy", 0.0) >= target else None}
    return found
