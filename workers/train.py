"""Training: from the first update, or from where an earlier run ended, to the last."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import numpy as np

from ipulaunch.configs.runs.events import Resumed, Training
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.planning.batch import updates_per_epoch
from ipulaunch.topology.planning.host_events import HostEvents, events_of
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.models.seeds import seed_generators
from ipulaunch.workers.progress import Progress
from ipulaunch.workers.state.history import History
from ipulaunch.workers.trainers.estimator import EstimatorTrainer, refuse_impossible
from ipulaunch.workers.trainers.keras import KerasTrainer
from ipulaunch.workers.trainers.trainer import Trainer


def make_trainer(instance: Instance, sources: Mapping[str, Source]) -> Trainer:
    """The trainer that the job asks for, with its network made and its events planned."""
    seed_generators(instance.settings.training.seed)
    if instance.settings.api == KERAS:
        return KerasTrainer(instance, _plan_events(instance, sources))
    refuse_impossible(instance)
    return EstimatorTrainer(instance, _plan_events(instance, sources))


def _plan_events(instance: Instance, sources: Mapping[str, Source]) -> HostEvents:
    """When the host acts in the training, if there is one; warnings show rounded values, and sets that are short."""
    training, data = instance.settings.training, instance.settings.data
    train, validation = sources["train"].samples, sources["validation"].samples
    events, warnings = events_of(training, train, instance.batch)
    if training.validation and validation < data.n_valid:
        warnings = [f"the validation set has {validation} samples, and --n-valid is {data.n_valid}", *warnings]
    if training.training and train < data.n_train:
        warnings = [f"the training set has {train} samples, and --n-train is {data.n_train}", *warnings]
    for warning in warnings:
        instance.warn(warning)
    return events


def train(instance: Instance, trainer: Trainer, source: Source, history: Optional[History]) -> Dict[str, Any]:
    """Train to the last update; returns what the summary of a run says of it."""

    def log(row: Dict[str, Any]) -> None:
        if history is not None:
            history.add({**row, "learning_rate": trainer.learning_rate})

    progress = Progress(instance, trainer.events, log, trainer.save, source.samples)
    begun = trainer.begin(source, progress)
    if begun.checkpoint:
        instance.records.event(Resumed(begun.checkpoint, begun.update))
    if history is not None:
        history.begin(begun.metrics, begun.update, begun.again)
    _announce(instance, source, trainer.events, begun.update)
    trainer.fit(source, progress, begun.update)
    instance.record_times(progress.updates)
    return _summarise(instance, progress, trainer.newest)


def _announce(instance: Instance, source: Source, events: HostEvents, first_update: int) -> None:
    """Record what will be trained."""
    settings, batch = instance.settings, instance.batch
    whole = updates_per_epoch(source.samples, batch, settings.training.remainder) * batch.global_size
    instance.records.event(
        Training(
            samples=source.samples,
            epochs=events.epochs,
            updates_per_epoch=events.updates_per_epoch,
            first_update=first_update,
            left_out=max(0, source.samples - whole),
            updates_per_call=events.updates_per_call,
            api=settings.api,
            batch=batch.formula,
            preparation=source.preparation,
            shares=instance.shuffle.shares,
        )
    )


def _summarise(instance: Instance, progress: Progress, checkpoint: str) -> Dict[str, Any]:
    """All instances ask together."""
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
