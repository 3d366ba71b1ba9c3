"""A run with an Estimator: training from its newest checkpoint to the last update, then evaluation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

import tensorflow as tf

from ipulaunch.configs.errors import DataError, JobError, NotReadyError, SettingsError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.settings.estimators import PLAIN, check_accumulation
from ipulaunch.data_pipeline.order import validation_ids
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.networks.host_events import HostEvents
from ipulaunch.topology.planning.rules import divisors
from ipulaunch.workers.estimators.hooks import Outside, Save, Tell, Watch
from ipulaunch.workers.estimators.interface import Estimators
from ipulaunch.workers.estimators.metrics import over_instances
from ipulaunch.workers.estimators.model_dir import ModelDir, Newest
from ipulaunch.workers.feeds import training_feed, validation_batch, validation_feed, validation_progress
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import scaled_rate
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.state.history import History
from ipulaunch.workers.state.identity import identity_of
from ipulaunch.workers.train import announce, plan_events, summarise
from ipulaunch.workers.validate import judged


def run_estimator(at: Instance, sources: Mapping[str, Source], history: Optional[History]) -> Dict[str, Any]:
    """Train, evaluate, or both; returns the summary."""
    _require_estimators()
    training = at.job.settings.training
    if at.job.settings.api == PLAIN and at.batch.replicas > 1:
        raise SettingsError(
            f"--api estimator trains one replica, and there are {at.batch.replicas}",
            hint="use --api replica-estimator, or --num-replicas 1",
        )
    check_accumulation(at.job.settings.api, at.batch.accumulation)
    side, directory, outside = _make_side(at), ModelDir(at), Outside()
    events = _in_calls(at, plan_events(at, sources))
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


def _make_side(at: Instance) -> Estimators:
    """What makes Estimators for the backend of this job."""
    if at.job.backend == "ipu":
        from ipulaunch.workers.backends.ipu.estimator import IpuEstimators

        return IpuEstimators(at)
    from ipulaunch.workers.estimators.cpu import CpuEstimators

    return CpuEstimators(at)


def _in_calls(at: Instance, events: HostEvents) -> HostEvents:
    """The events with device calls as long as was asked for; all of them must fall between two calls."""
    asked, accumulation = at.job.settings.estimator_run.batches_per_step, at.batch.accumulation
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
    side: Estimators,
    directory: ModelDir,
    source: Source,
    events: HostEvents,
    history: Optional[History],
    outside: Outside,
) -> Dict[str, Any]:
    rate = scaled_rate(at.job.settings.optimizer, at.batch)
    newest = directory.newest()
    # TensorFlow's step counts micro-batches.
    identity = {**identity_of(at, source), "accumulation": at.batch.accumulation}
    known = directory.check(identity, newest, events.total_updates)

    def log(row: Dict[str, Any]) -> None:
        if history is not None:
            history.add({**row, "learning_rate": rate})

    progress = Progress(at, events, log, lambda progress: None, source.samples)
    start = newest.update if newest else 0
    if newest is not None:
        if start % events.updates_per_call:
            raise SettingsError(
                f"{newest.path} stopped after update {start},"
                f" inside a device call of {events.updates_per_call} updates",
                hint="continue with the --batches-per-step it was begun with",
            )
        progress.continue_from(newest.path, start, known)
        at.records.event("resumed", path=newest.path, update=start)
    if history is not None:
        history.begin(_metrics_of(at, known), start)
    announce(at, source, events, start)
    if start < events.total_updates:

        def feed() -> tf.data.Dataset:
            return side.training_feed(training_feed(at, source, range(start, events.total_updates)).stream)

        per_call = events.updates_per_call
        runs = per_call // side.updates_per_run(per_call)
        watch = Watch(at, progress, runs, outside)
        hooks = [watch, Save(at, directory, identity, watch)] if at.writes else [watch]
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
    last = directory.newest()
    return summarise(at, progress, last.path if last else "")


def _metrics_of(at: Instance, known: Mapping[str, Any]) -> Path:
    """What was measured before the newest checkpoint: in the run that wrote it, where a --model-dir tells that."""
    is_named = at.job.settings.estimator_run.model_dir is not None
    writer = RunDirectory(Path(str(known.get("run", at.run.path) if is_named else at.run.path)))
    return writer.metrics if writer.metrics.is_file() else at.run.metrics


def _evaluate(
    at: Instance, side: Estimators, directory: ModelDir, source: Source, events: HostEvents, history: Optional[History]
) -> Dict[str, Any]:
    """Evaluate the newest checkpoint over the whole validation set."""
    training, measures = at.job.settings.training, measures_of(at.job.settings)
    newest: Optional[Newest] = directory.newest()
    if newest is None:
        raise DataError(f"there is no checkpoint in {directory.path}", hint="train first, with the same --model-dir")
    batch = validation_batch(at)
    steps = -(-source.samples // batch.global_size)
    whole = side.evaluation_steps(steps)

    def feed() -> tf.data.Dataset:
        stream = validation_feed(at, source).stream
        return side.evaluation_feed(stream, batch.micro_size, (whole - steps) * at.place.local_replicas)

    config = _config(at, directory.prepared(newest))
    estimator = side.make(config, whole, is_training=False)
    hooks = [Tell(validation_progress(at), whole)] if side.returns_each_step else []
    found = estimator.evaluate(feed, steps=whole, hooks=hooks, checkpoint_path=newest.path)
    weight = float(validation_ids(source.samples, batch, at.place)[1].sum())
    values = over_instances(found, weight, measures, at.backend.collective)
    row: Dict[str, Any] = {"checkpoint": Path(newest.path).name, "update": newest.update}
    row["epoch"] = round(newest.update / events.updates_per_epoch, 4) if training.training else None
    row.update({f"val_{name}": value for name, value in values.items()})
    at.records.event("validation", samples=source.samples, **row)
    if history is not None:
        history.add(row)
    if not all(map(math.isfinite, values.values())):
        raise JobError("a validation loss is not finite", hint="lower the learning rate")
    return {"validation_samples": source.samples, **judged([row], measures[-1], training.target_accuracy)}
