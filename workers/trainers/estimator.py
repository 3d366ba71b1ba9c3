"""Training with an Estimator: from the newest checkpoint of its directory to the last update, then its evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

import tensorflow as tf

from ipulaunch.configs.errors import DataError, JobError, NotReadyError, SettingsError
from ipulaunch.configs.settings.estimators import PLAIN, check_accumulation
from ipulaunch.data_pipeline.order import validation_ids
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.planning.host_events import HostEvents, in_calls_of
from ipulaunch.workers.feeds import training_feed, validation_feed, validation_progress
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.trainers.hooks import Outside, Save, Tell, Watch
from ipulaunch.workers.trainers.model_dir import ModelDir, Newest
from ipulaunch.workers.trainers.trainer import Begun, Row, Trainer


class EstimatorTrainer(Trainer):
    """Trains with the Estimator of a backend, in a session that it opens itself."""

    def __init__(self, instance: Instance, events: HostEvents) -> None:
        settings, batch = instance.settings, instance.batch
        batches = settings.estimator_run.batches_per_step
        if batches is not None and settings.training.training:
            events = in_calls_of(events, batches, batch.accumulation)
        super().__init__(instance, events)
        self.estimators, self.directory = instance.backend.estimators(), ModelDir(instance)
        self.found: Optional[Newest] = None  # that the training begins with
        self.identity: Dict[str, Any] = {}

    @property
    def learning_rate(self) -> float:
        return self.estimators.learning_rate

    @property
    def newest(self) -> str:
        newest = self.directory.newest()
        return newest.path if newest else ""

    def begin(self, source: Source, progress: Progress) -> Begun:
        instance, events = self.instance, self.events
        self.found = newest = self.directory.newest()
        # TensorFlow's step counts micro-batches.
        self.identity = {**self.identity_on(source), "accumulation": instance.batch.accumulation}
        known = self.directory.check(self.identity, newest, events.total_updates)
        if newest is not None:
            if newest.update % events.updates_per_call:
                raise SettingsError(
                    f"{newest.path} stopped after update {newest.update},"
                    f" inside a device call of {events.updates_per_call} updates",
                    hint="continue with the --batches-per-step it was begun with",
                )
            progress.continue_from(newest.path, newest.update, known)
        metrics = self.directory.metrics_of(known)
        if newest is None:
            return Begun(0, metrics)
        is_last = newest.update == events.total_updates  # a training validates its newest checkpoint alone
        again = (Path(newest.path).name,) if is_last and instance.settings.training.validation else ()
        return Begun(newest.update, metrics, newest.path, again)

    def fit(self, source: Source, progress: Progress, start: int) -> None:
        if start == self.events.total_updates:
            return
        outside = Outside()
        try:
            self._fit(source, progress, start, outside)
        finally:
            outside.close()

    def _fit(self, source: Source, progress: Progress, start: int, outside: Outside) -> None:
        instance, per_call, accumulation = self.instance, self.events.updates_per_call, self.instance.batch.accumulation
        updates = range(start, self.events.total_updates)

        def feed() -> tf.data.Dataset:
            return self.estimators.training_feed(training_feed(instance, source, updates).stream)

        watch = Watch(instance, progress, per_call // self.estimators.updates_per_run(per_call), outside)
        hooks = [watch, Save(instance, self.directory, self.identity, watch)] if instance.writes else [watch]
        self.estimators.begin_after(start)
        estimator = self._make(self.found, per_call * accumulation, is_training=True)
        try:
            estimator.train(feed, hooks=hooks, max_steps=updates.stop * accumulation)
        except tf.estimator.NanLossDuringTrainingError as error:
            raise JobError(
                f"the loss is not finite any more after update {progress.updates}", hint="lower the learning rate"
            ) from error
        if watch.stopped is not None:
            raise watch.stopped

    def save(self, progress: Progress) -> None:
        """A hook writes the checkpoint: the weights are inside of the session."""

    def saved(self) -> List[Path]:
        """The newest checkpoint alone."""
        newest = self.newest
        if not newest:
            where = self.directory.path
            raise DataError(f"there is no checkpoint in {where}", hint="train first, with the same --model-dir")
        return [Path(newest)]

    def evaluate(self, checkpoint: Optional[Path], source: Source) -> Optional[Row]:
        instance, estimators = self.instance, self.estimators
        newest = self.directory.newest_of(str(checkpoint))
        batch = instance.validation_batch
        steps = -(-source.samples // batch.global_size)
        whole = estimators.evaluation_steps(steps)

        def feed() -> tf.data.Dataset:
            stream = validation_feed(instance, source).stream
            return estimators.evaluation_feed(
                stream, batch.micro_size, (whole - steps) * len(instance.backend.replicas)
            )

        hooks = [Tell(validation_progress(instance), whole)] if estimators.returns_each_step else []
        estimator = self._make(newest, whole, is_training=False)
        found = estimator.evaluate(feed, steps=whole, hooks=hooks, checkpoint_path=newest.path)
        weight = float(validation_ids(source.samples, batch, instance.backend.replicas)[1].sum())
        is_trained = instance.settings.training.training
        return {
            "checkpoint": Path(newest.path).name,
            "update": newest.update,
            "epoch": round(newest.update / self.events.updates_per_epoch, 4) if is_trained else None,
            **{f"val_{name}": value for name, value in estimators.over_instances(found, weight).items()},
        }

    def _make(self, newest: Optional[Newest], steps_per_call: int, *, is_training: bool) -> Any:
        """An Estimator that begins at a checkpoint: with no checkpoints or summaries beside ours, and our threads."""
        training, threading = self.instance.settings.training, tf.config.threading
        config = {
            "model_dir": self.directory.prepared(newest),
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
        return self.estimators.make(config, steps_per_call, is_training)


def refuse_impossible(instance: Instance) -> None:
    """Refuse what an Estimator cannot train, before the events of the training are planned."""
    _require_estimators()
    settings, batch = instance.settings, instance.batch
    if settings.api == PLAIN and batch.replicas > 1:
        raise SettingsError(
            f"--api estimator trains one replica, and there are {batch.replicas}",
            hint="use --api replica-estimator, or --num-replicas 1",
        )
    check_accumulation(settings.api, batch.accumulation)


def _require_estimators() -> None:
    if not hasattr(tf, "estimator") or not hasattr(tf.estimator, "Estimator"):
        raise NotReadyError(
            f"TensorFlow {tf.__version__} has no Estimators any more: 2.15 was the last that had them",
            hint="use TensorFlow 2.15 or the Poplar SDK's, or train with Keras: --api keras, --no-use-estimator",
        )
