"""What happens between the device calls of an Estimator: it reports its progress and writes its checkpoints."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import StoppedError
from ipulaunch.configs.runs.checkpoints import ESTIMATOR_PREFIX, estimator_checkpoint_name
from ipulaunch.configs.runs.events import CheckpointWritten
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.trainers.model_dir import ModelDir


class Outside:
    """Runs functions outside of an Estimator's graph, where the summaries and sums of the host are not allowed."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1)  # graphs are entered by thread

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.thread.submit(function, *arguments).result()

    def close(self) -> None:
        self.thread.shutdown()


class Watch(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Reports every device call to the progress; a request to stop ends the training, with a checkpoint."""

    def __init__(self, instance: Instance, progress: Progress, runs_per_call: int, outside: Outside) -> None:
        self.instance, self.progress, self.runs_per_call, self.outside = instance, progress, runs_per_call, outside
        self.losses: List[float] = []
        self.calls = 0
        self.stopped: Optional[StoppedError] = None

    def begin(self) -> None:
        self.loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.progress.on_epoch_begin(0)

    def before_run(self, run_context: Any) -> Any:
        self.progress.times.turn_to("device")
        return tf.compat.v1.train.SessionRunArgs(self.loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.progress.times.turn_to("other")
        self.losses.append(float(run_values.results))
        if len(self.losses) < self.runs_per_call:
            return
        loss, self.losses = sum(self.losses) / len(self.losses), []
        self.calls += 1
        try:
            self.outside(self._tell, loss)
        except StoppedError as stopped:
            self.stopped = stopped
            run_context.request_stop()

    def _tell(self, loss: float) -> None:
        instances = self.instance.plan.instances
        if instances > 1:
            loss = float(self.instance.backend.collective.sum(np.array([loss]))[0]) / instances
        steps = self.calls * self.progress.events.updates_per_call * self.instance.backend.steps_per_update
        self.progress.on_train_batch_end(steps - 1, {"loss": loss})


class Tell(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Reports the progress of an evaluation that returns to the host after every step."""

    def __init__(self, progress: Callable[[int, int], object], steps: int) -> None:
        self.progress, self.steps, self.done = progress, steps, 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.done += 1
        self.progress(self.done, self.steps)


class Save(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Writes checkpoints after the updates at which they are due, and at the end; without a period, when it is stopped.

    TensorFlow's own hook looks before the SDK has counted the steps of a device call: its checkpoints would be named,
    and continued, a call too early. So this one looks before the next call begins.
    """

    def __init__(self, instance: Instance, directory: ModelDir, identity: Dict[str, Any], watch: Watch) -> None:
        self.instance, self.directory, self.identity, self.watch = instance, directory, identity, watch
        self.events = watch.progress.events
        self.saved_step = -1

    def begin(self) -> None:
        self.step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.saved_step = int(session.run(self.step))  # what it begins with is there, or can be made again

    def before_run(self, run_context: Any) -> None:
        step = int(run_context.session.run(self.step))
        if step != self.saved_step and self.events.saves_at(step // self.instance.batch.accumulation):
            self._save(run_context.session, step)

    def end(self, session: Any) -> None:
        step = int(session.run(self.step))
        is_due = self.events.checkpoint_every > 0 or self.watch.stopped is not None
        if is_due and step != self.saved_step:
            self._save(session, step)

    def _save(self, session: Any, step: int) -> None:
        self.instance.records.require_current()
        (saver,) = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS)
        directory = self.directory.path
        with self.watch.progress.times.part("checkpoint"):
            saver.save(session, str(directory / ESTIMATOR_PREFIX), global_step=step, write_meta_graph=False)
            self.directory.note(self.identity, self.watch.progress)
        self.saved_step = step
        path = str(directory / estimator_checkpoint_name(step))
        self.instance.records.event(CheckpointWritten(path, step // self.instance.batch.accumulation))
