"""Training with Keras: fit() on the backend, checkpoints of our own, and every one of them validated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.checkpoints import found_in
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.workers.feeds import tracing, training_feed, validation_feed, validation_progress
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.state import checkpoints
from ipulaunch.workers.state.keeper import Keeper
from ipulaunch.workers.state.resuming import metrics_of, require_same_network, resume
from ipulaunch.workers.state.training_state import prepare_training
from ipulaunch.workers.trainers.trainer import Begun, Row, Trainer


class KerasTrainer(Trainer):
    """Trains with fit(), which makes a device call an epoch long."""

    remedy = "lower the learning rate, or raise --loss-scaling"

    def __init__(self, instance: Instance, events: HostEvents) -> None:
        super().__init__(instance, events)
        pools_in_half = not instance.job.is_rehearsal
        self.trained, self.state = prepare_training(instance.backend, events, native_half=pools_in_half)
        self.keeper: Optional[Keeper] = None  # of a training

    @property
    def learning_rate(self) -> float:
        return self.state.learning_rate

    @property
    def newest(self) -> str:
        return self.keeper.newest if self.keeper is not None else ""

    def begin(self, source: Source, progress: Progress) -> Begun:
        identity = self.identity_on(source)
        self.keeper = keeper = Keeper(self.instance, self.state, identity)
        if self.instance.settings.training.resume is None:
            return Begun(0)
        checkpoint = resume(self.instance, keeper, identity, self.state, progress)
        if checkpoint is None:
            return Begun(0)
        if checkpoint.update == self.events.total_updates and not keeper.resumes_itself:
            message = f"all {checkpoint.update} updates of this training were made before: --num-epochs makes it longer"
            self.instance.warn(message)
        again = [path.name for path in keeper.saved] if self.instance.settings.training.validation else []
        return Begun(checkpoint.update, metrics_of(self.instance, checkpoint), str(checkpoint.path), tuple(again))

    def fit(self, source: Source, progress: Progress, start: int) -> None:
        instance = self.instance
        with tracing(instance, source) as trace:
            for updates, per_call in _calls(start, self.events):
                self.trained.fit(
                    training_feed(instance, source, updates, trace),
                    epochs=len(updates) // per_call,
                    steps_per_epoch=per_call * instance.backend.steps_per_update,
                    callbacks=[progress],
                )

    def save(self, progress: Progress) -> None:
        if self.keeper is not None:
            self.keeper.save(progress)

    def saved(self) -> List[Path]:
        """The checkpoints of this run, or those of --checkpoint-input-dir, as instance 0 sees them."""
        instance = self.instance
        directory, paths = instance.settings.training.checkpoint_input_dir, self.keeper.saved if self.keeper else []
        if directory is not None and instance.writes:
            paths = found_in(Path(directory))
        text = json.dumps([str(path) for path in paths])
        paths = [Path(found) for found in json.loads(instance.backend.collective.first(text))]
        if not paths and not instance.settings.training.training:
            where = f" in {directory}" if directory else ""
            instance.warn(f"there is no checkpoint{where}: random weights are evaluated")
        return paths

    def evaluate(self, checkpoint: Optional[Path], source: Source) -> Optional[Row]:
        row: Row = {"update": self.events.total_updates, "epoch": self.events.epochs}
        if checkpoint is not None:
            whole = self._whole(checkpoint)
            if whole is None:
                return None
            require_same_network(self.instance, whole)
            self.state.restore_weights(whole)
            row = {"checkpoint": checkpoint.name, "update": whole.update, "epoch": whole.facts.get("epoch")}
        return {**row, **{f"val_{name}": value for name, value in self._validate(source).items()}}

    def _whole(self, path: Path) -> Optional[checkpoints.Checkpoint]:
        """A checkpoint that all instances can read; a warning names one that is damaged, and all leave it out."""
        checkpoint, reason = None, f"{path} cannot be read whole by another instance"
        try:
            checkpoint = checkpoints.load(path)
        except DataError as error:
            reason = error.message
        if self.instance.backend.collective.sum(np.array([checkpoint is None], np.int64))[0]:
            self.instance.warn(f"{reason}; it is not evaluated")
            return None
        return checkpoint

    def _validate(self, source: Source) -> Dict[str, float]:
        instance = self.instance
        feed = validation_feed(instance, source)
        micro_size = instance.validation_batch.micro_size
        return instance.backend.validate(self.trained, feed, source.samples, micro_size, validation_progress(instance))

    def load(self, source: Source) -> None:
        """Make one device call, which compiles and loads the program, and take back what it has learned.

        MLPerf's rules for the time to train allow it before the clock starts.
        """
        before = self.state.copy()
        self._call_once(source)
        self.state.restore(before)

    def compile_alone(self, sources: Mapping[str, Source]) -> List[str]:
        """Have everything compiled that a run with the same settings executes: one call of each kind. Keeps nothing."""
        training = self.instance.settings.training
        if training.training:
            self._call_once(sources["train"])
        if training.validation:
            self._validate(sources["validation"])
        return ["training"] * training.training + ["validation"] * training.validation

    def _call_once(self, source: Source) -> None:
        updates = self.events.updates_per_call
        feed = training_feed(self.instance, source, range(updates))
        steps = updates * self.instance.backend.steps_per_update
        self.trained.fit(feed, epochs=1, steps_per_epoch=steps, callbacks=[])

    def clean(self) -> None:
        if self.keeper is not None:
            self.keeper.clean()


def _calls(start: int, events: HostEvents) -> Iterator[Tuple[range, int]]:
    """The updates that are left, and how many make a device call: after a stop, first a shorter call is completed."""
    boundary = min(events.total_updates, -(-start // events.updates_per_call) * events.updates_per_call)
    if boundary > start:
        yield range(start, boundary), boundary - start
    if events.total_updates > boundary:
        yield range(boundary, events.total_updates), events.updates_per_call
