"""Training: from the first update, or from where an earlier run ended, to the last."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.source import Source
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology.batch import updates_per_epoch
from ipulaunch.topology.host_events import HostEvents, events_of
from ipulaunch.workers import checkpoints
from ipulaunch.workers.history import History
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.state import TrainingState


def plan_events(at: Instance, source: Source) -> HostEvents:
    """When the host will hear of the training, if there is one; what was rounded is told."""
    events, warnings = events_of(at.job.settings.training, source.samples, at.batch)
    for warning in warnings:
        at.records.event("warning", message=warning)
    return events


def train(
    at: Instance, source: Source, events: HostEvents, trained: Any, state: TrainingState, history: Optional[History]
) -> Tuple[Dict[str, Any], List[Path]]:
    """Fit; returns the summary and, where checkpoints are written, which there are."""
    training, data = at.job.settings.training, at.job.settings.data
    shuffle = Shuffle(training.seed, data.shuffle_block, data.shuffle_window)
    identity = _identity(at, source, shuffle)
    keeper = _Keeper(at, state, identity)

    def log(row: Dict[str, Any]) -> None:
        if history is not None:
            history.add({**row, "learning_rate": state.learning_rate})

    progress = Progress(at, events, log, keeper.save)
    start = _resume(at, Path(training.resume), identity, state, progress, history) if training.resume else 0
    whole = updates_per_epoch(source.samples, at.batch, training.remainder) * at.batch.global_size
    at.records.event(
        "training",
        epochs=events.epochs,
        updates_per_epoch=events.updates_per_epoch,
        updates_per_call=events.updates_per_call,
        first_update=start,
        samples=source.samples,
        left_out=max(0, source.samples - whole),
        batch=at.batch.formula,
    )
    trained.make = getattr(source, "make", None)
    with _tracing(trained, at):
        for updates, per_call in _calls(start, events):
            stream = training_stream(
                source,
                at.batch,
                at.place,
                shuffle=shuffle,
                updates=updates,
                by_replica=at.backend.runs_by_replica,
                threads=at.threads,
                remainder=training.remainder,
                traced=training.trace_samples,
            )
            trained.fit(
                at.sent(stream),
                epochs=len(updates) // per_call,
                steps_per_epoch=per_call * at.backend.steps_per_update,
                callbacks=[progress],
                verbose=0,
            )
    return {**_summary(progress, at), "checkpoint": keeper.newest}, keeper.saved


def _calls(start: int, events: HostEvents) -> Iterator[Tuple[range, int]]:
    """The updates that are left, and how many make a device call: after a stop, first a shorter call is completed."""
    boundary = min(events.total_updates, -(-start // events.updates_per_call) * events.updates_per_call)
    if boundary > start:
        yield range(start, boundary), boundary - start
    if events.total_updates > boundary:
        yield range(boundary, events.total_updates), events.updates_per_call


def _identity(at: Instance, source: Source, shuffle: Shuffle) -> Dict[str, Any]:
    """What must not change between a run and the one that continues it."""
    return {
        "workload": at.job.workload,
        "model": at.job.settings.model.name,
        "samples": source.samples,
        "global_batch": at.batch.global_size,
        "remainder": at.job.settings.training.remainder,
        **shuffle._asdict(),
    }


class _Keeper:
    """Writes checkpoints, on instance 0, and removes those that are not to be kept."""

    def __init__(self, at: Instance, state: TrainingState, identity: Dict[str, Any]) -> None:
        training = at.job.settings.training
        self.at, self.state, self.identity = at, state, identity
        self.directory = Path(training.checkpoint_output_dir or at.run.checkpoints)
        self.keep: Optional[int] = training.keep_checkpoints
        # Those of an earlier attempt at the same run count as well.
        self.saved: List[Path] = checkpoints.found_in(self.directory) if at.writes and self.resumes_itself else []
        self.losses: Dict[Path, float] = dict.fromkeys(self.saved, math.inf)
        if at.writes and training.checkpoint_output_dir is None:  # elsewhere others may be writing
            checkpoints.sweep(self.directory)

    @property
    def resumes_itself(self) -> bool:
        """Whether the run that is continued is the one that we write to."""
        resume = self.at.job.settings.training.resume
        return resume is not None and Path(resume) in (self.at.run.path, self.directory)

    def save(self, progress: Progress) -> None:
        if not self.at.writes:
            return
        position = {"update": progress.updates, "epoch": progress.epoch}
        path = self.state.save(self.directory, {**position, "since_log": progress.since_log, **self.identity})
        self.saved = [*(other for other in self.saved if other < path), path]
        self.losses[path] = progress.metrics.get("loss", math.inf)
        if self.keep is not None:
            best = min(self.saved, key=self.losses.__getitem__)
            self.saved = checkpoints.prune(self.saved, self.keep, best)
        self.at.records.event("checkpoint", path=self.newest, **position)

    @property
    def newest(self) -> str:
        """The newest checkpoint, from the run directory where it is in it."""
        if not self.saved:
            return ""
        with contextlib.suppress(ValueError):
            return str(self.saved[-1].relative_to(self.at.run.path))
        return str(self.saved[-1])


def _resume(
    at: Instance,
    where: Path,
    identity: Dict[str, Any],
    state: TrainingState,
    progress: Progress,
    history: Optional[History],
) -> int:
    """Take up the newest whole checkpoint, which must be of the same training; returns its update."""
    newest = checkpoints.newest_whole(where) if at.writes else None
    path = at.backend.collective.first(str(newest.path) if newest else "")
    if not path:
        raise DataError(f"there is no whole checkpoint in {where}", hint="leave --resume out to start anew")
    checkpoint = newest or checkpoints.load(Path(path))
    for name, value in identity.items():
        if checkpoint.facts.get(name) != value:
            raise SettingsError(
                f"{path} was trained with {name.replace('_', ' ')} {checkpoint.facts.get(name)}, this job has {value}",
                hint="resume with the settings of the run, which are in its job.yaml",
            )
    if checkpoint.update > progress.events.total_updates:
        raise SettingsError(
            f"{path} has made {checkpoint.update} updates, and this training is {progress.events.total_updates} long",
            hint="give a larger --num-epochs, or evaluate it with --no-training --checkpoint-input-dir",
        )
    state.restore(checkpoint)
    progress.continue_from(checkpoint.update, checkpoint.facts["since_log"])
    if history is not None:
        history.carry_over(checkpoint.path.parent.parent / at.run.metrics.name, checkpoint.update)
    at.records.event("resumed", path=path, update=checkpoint.update)
    return checkpoint.update


@contextlib.contextmanager
def _tracing(trained: Any, at: Instance) -> Iterator[None]:
    """While inside, every micro-batch leaves a line per sample in this instance's samples.csv."""
    if not at.job.settings.training.trace_samples:
        yield
        return
    with at.run.samples(at.place.instance).open("w", encoding="ascii") as file:
        file.write("epoch,update,step,replica,sample\n")

        def trace(epoch: Any, update: Any, step: Any, replica: Any, ids: Any) -> None:
            file.writelines(f"{epoch},{update},{step},{replica},{number}\n" for number in ids)

        trained.trace = trace
        yield


def _summary(progress: Progress, at: Instance) -> Dict[str, Any]:
    rates = np.zeros(at.place.instances)
    rates[at.place.instance] = progress.rate()
    rates = at.backend.collective.sum(rates)
    return {
        "updates": progress.updates,
        "samples": progress.updates * at.batch.global_size,
        "train_s": progress.train_s,
        "samples_per_s": float(rates.sum()),
        "samples_per_s_by_instance": [float(rate) for rate in rates],
        "metrics": progress.metrics,
    }
