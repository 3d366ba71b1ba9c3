"""Training: from the first update, or from where an earlier run ended, to the last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.runs.directory import RunDirectory, records_of
from ipulaunch.configs.runs.events import Resumed, Training, WarningEvent
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.networks.host_events import HostEvents, events_of
from ipulaunch.topology.planning.batch import updates_per_epoch
from ipulaunch.workers.backends.interface import Trained
from ipulaunch.workers.feeds import training_feed
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.tracing import tracing
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.state import checkpoints
from ipulaunch.workers.state.checkpoints import Checkpoint
from ipulaunch.workers.state.history import History
from ipulaunch.workers.state.identity import identity_of, require_same
from ipulaunch.workers.state.keeper import Keeper
from ipulaunch.workers.state.training_state import TrainingState


def plan_events(instance: Instance, sources: Mapping[str, Source]) -> HostEvents:
    """When the host will hear of the training, if there is one; what was rounded is told, and sets that are short."""
    training, data = instance.settings.training, instance.settings.data
    train, validation = sources["train"].samples, sources["validation"].samples
    events, warnings = events_of(training, train, instance.batch)
    if training.validation and validation < data.n_valid:
        warnings = [f"the validation set has {validation} samples, and --n-valid is {data.n_valid}", *warnings]
    if training.training and train < data.n_train:
        warnings = [f"the training set has {train} samples, and --n-train is {data.n_train}", *warnings]
    for warning in warnings:
        instance.records.event(WarningEvent(warning))
    return events


def train(
    instance: Instance,
    source: Source,
    events: HostEvents,
    trained: Trained,
    state: TrainingState,
    history: Optional[History],
) -> Tuple[Dict[str, Any], Keeper]:
    """Fit; returns the summary, and what has kept the checkpoints."""
    training = instance.settings.training
    identity = identity_of(instance, source)
    keeper = Keeper(instance, state, identity)

    def log(row: Dict[str, Any]) -> None:
        if history is not None:
            history.add({**row, "learning_rate": state.learning_rate})

    progress = Progress(instance, events, log, keeper.save, source.samples)
    checkpoint = _resume(instance, keeper, identity, state, progress) if training.resume else None
    start = checkpoint.update if checkpoint else 0
    if history is not None:
        history.begin(_metrics_of(instance, checkpoint) if checkpoint else None, start)
    if start == events.total_updates and not keeper.resumes_itself:
        message = f"all {start} updates of this training were made before: --num-epochs makes it longer"
        instance.records.event(WarningEvent(message))
    announce(instance, source, events, start)
    with tracing(instance, source) as trace:
        for updates, per_call in _calls(start, events):
            trained.fit(
                training_feed(instance, source, updates, trace),
                epochs=len(updates) // per_call,
                steps_per_epoch=per_call * instance.backend.steps_per_update,
                callbacks=[progress],
            )
    return summarise(instance, progress, keeper.newest), keeper


def announce(instance: Instance, source: Source, events: HostEvents, first_update: int) -> None:
    """Record what will be trained."""
    batch, remainder = instance.batch, instance.job.settings.training.remainder
    whole = updates_per_epoch(source.samples, batch, remainder) * batch.global_size
    instance.records.event(
        Training(
            samples=source.samples,
            epochs=events.epochs,
            updates_per_epoch=events.updates_per_epoch,
            first_update=first_update,
            left_out=max(0, source.samples - whole),
            updates_per_call=events.updates_per_call,
            api=instance.job.settings.api,
            batch=batch.formula,
        )
    )


def summarise(instance: Instance, progress: Progress, checkpoint: str) -> Dict[str, Any]:
    """What the summary of a run says of its training; all instances ask together."""
    rates = instance.backend.collective.rows(np.array(progress.rate()))
    return {
        "updates": progress.updates,
        "samples": progress.samples_in(range(progress.updates)),
        "train_s": progress.train_s,
        "samples_per_s": float(rates.sum()),
        "samples_per_s_by_instance": [float(rate) for rate in rates],
        "metrics": progress.metrics,
        "checkpoint": checkpoint,
    }


def _calls(start: int, events: HostEvents) -> Iterator[Tuple[range, int]]:
    """The updates that are left, and how many make a device call: after a stop, first a shorter call is completed."""
    boundary = min(events.total_updates, -(-start // events.updates_per_call) * events.updates_per_call)
    if boundary > start:
        yield range(start, boundary), boundary - start
    if events.total_updates > boundary:
        yield range(boundary, events.total_updates), events.updates_per_call


def _resume(
    instance: Instance, keeper: Keeper, identity: Dict[str, Any], state: TrainingState, progress: Progress
) -> Optional[Checkpoint]:
    """Take up the newest whole checkpoint, which must be of the same training.

    A further attempt at a run whose checkpoints are all damaged begins anew; a run that was named must have one.
    """
    where = Path(str(instance.settings.training.resume))
    checkpoint, damaged = _newest(instance, where)
    if checkpoint is None and keeper.resumes_itself and instance.run.attempts.is_dir():
        message = (
            f"none of the checkpoints in {keeper.directory} is complete: the run starts from the beginning, at update 0"
        )
        instance.records.event(WarningEvent(message))
        keeper.saved = []  # nor are they validated
        return None
    if checkpoint is None:
        named = bool(damaged) and checkpoints.found_in(where) == [where]
        message = damaged[0] if named else "; ".join([f"there is no complete checkpoint in {where}", *damaged[:1]])
        raise DataError(message, hint="name another one, or leave --resume out to start a new training")
    path = str(checkpoint.path)
    for reason in damaged:
        instance.records.event(WarningEvent(f"{reason}; {checkpoint.path.name} is taken instead"))
    require_same(identity, checkpoint.facts, path, "resume with the settings of the run, which are in its job.yaml")
    if checkpoint.update > progress.events.total_updates:
        raise SettingsError(
            f"{path} has made {checkpoint.update} updates, and this training is {progress.events.total_updates} long",
            hint="give a larger --num-epochs, or evaluate it with --no-training --checkpoint-input-dir",
        )
    state.restore(checkpoint)
    progress.continue_from(path, checkpoint.update, checkpoint.facts)
    instance.records.event(Resumed(path, checkpoint.update))
    return checkpoint


def _metrics_of(instance: Instance, checkpoint: Checkpoint) -> Path:
    """What was measured before a checkpoint: in the run that it lies in or was written by, else in the one named."""
    inside, writer = checkpoint.path.parent.parent, Path(str(checkpoint.facts.get("run", instance.run.path)))
    named = records_of(Path(str(instance.settings.training.resume))).path
    runs = [RunDirectory(path) for path in (inside, writer, named, instance.run.path)]
    return next((run.metrics for run in runs if run.metrics.is_file()), instance.run.metrics)


def _newest(instance: Instance, where: Path) -> Tuple[Optional[Checkpoint], List[str]]:
    """The newest whole checkpoint that instance 0 sees, on all, and what is wrong with those that are newer."""
    damaged: List[str] = []
    newest = checkpoints.newest_whole(where, damaged.append) if instance.writes else None
    told = json.dumps([str(newest.path) if newest else "", damaged])
    path, damaged = json.loads(instance.backend.collective.first(told))
    if newest is None and path:
        newest = checkpoints.load(Path(path))
    return newest, damaged
