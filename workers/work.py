"""One instance's part of a run, from top to bottom: data, model, training, validation, summary."""

from __future__ import annotations

import json
import random
import time
from typing import Any, Dict, Mapping, Optional

import numpy as np
import tensorflow as tf

from ipulaunch.configs.runs.directory import write_whole
from ipulaunch.configs.runs.events import PREPARING, TimeToTrain, WarningEvent
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.data_pipeline.sources.selection import make_sources, reading_warnings
from ipulaunch.data_pipeline.sources.source import Source, data_errors
from ipulaunch.topology.networks import network_of
from ipulaunch.workers.compiling import compile_run
from ipulaunch.workers.estimators.running import run_estimator
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.skipped_records import count_skipped_records
from ipulaunch.workers.loading import load_program
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import make_optimizer
from ipulaunch.workers.models.precision import precision
from ipulaunch.workers.state.curves import draw_curves
from ipulaunch.workers.state.history import History
from ipulaunch.workers.state.keeper import Keeper
from ipulaunch.workers.state.training_state import TrainingState
from ipulaunch.workers.state.weights_and_biases import wandb_run
from ipulaunch.workers.train import plan_events, train
from ipulaunch.workers.validate import validate_run


def run_instance(instance: Instance) -> Dict[str, Any]:
    """Train, validate, or both. Returns the summary of the run as instance 0 has it, on every instance."""
    training, backend = instance.settings.training, instance.backend
    _seed(training.seed)
    sources = make_sources(
        instance.job,
        instance.plan,
        instance.index,
        instance.threads,
        meet=backend.collective.first,
        progress=lambda what, done, total: instance.records.event(PREPARING[what](done, total)),
    )
    for warning in reading_warnings(instance.job, sources["train"]):
        instance.records.event(WarningEvent(warning))
    run = _run_keras if instance.job.settings.api == KERAS else run_estimator
    with wandb_run(instance) as wandb:
        history = History(instance.run, wandb.log) if instance.writes else None
        with data_errors(*sources.values()):
            summary = run(instance, sources, history)
        summary.update(count_skipped_records(instance, *sources.values()))
        # Instance 0 alone knows the checkpoints, and clocks differ.
        text = backend.collective.first(json.dumps(summary, indent=1))
        agreed: Dict[str, Any] = json.loads(text)
        wandb.summarise(agreed)
    if history is not None:
        history.close()
        write_whole(instance.run.summary, text + "\n")
        _draw(instance, history)
    return agreed


def _draw(instance: Instance, history: History) -> None:
    """The curves, which are an extra: a training that is complete does not fail for them."""
    try:
        draw_curves(instance.run, history.rows)
    except Exception as error:  # noqa: BLE001 - matplotlib is the user's own, and may be broken in any way
        instance.records.event(WarningEvent(f"the curves could not be drawn: {type(error).__name__}: {error}"))


def _run_keras(instance: Instance, sources: Mapping[str, Source], history: Optional[History]) -> Dict[str, Any]:
    """Train, validate, or both, with Keras."""
    settings, training, backend = instance.settings, instance.settings.training, instance.backend
    events = plan_events(instance, sources)
    measures = measures_of(settings)
    with backend.scope(), precision(training.precision):
        model = build_model(network_of(settings), backend.dropout, half_volume_pools=instance.job.backend == "ipu")
        optimizer = make_optimizer(settings, instance.batch, events.updates_per_epoch)
        trained = backend.prepare(model, optimizer, measures, events)
    state = TrainingState(model, optimizer, trained.more)
    summary: Dict[str, Any] = {"metrics": {}}
    keeper: Optional[Keeper] = None
    if settings.device.compile_only and instance.job.backend == "ipu":
        return compile_run(instance, sources, events, trained)
    if training.training and settings.logging.mlperf:
        load_program(instance, sources["train"], events, trained, state)
    start = time.perf_counter()
    if training.training:
        summary, keeper = train(instance, sources["train"], events, trained, state, history)
    if training.validation:
        saved = keeper.saved if keeper is not None else []
        found = validate_run(instance, sources["validation"], events, trained, state, saved, history)
        summary = {**summary, **found, "metrics": {**summary["metrics"], **found["metrics"]}}
    if training.training and training.validation:
        summary["time_to_train_s"] = time.perf_counter() - start
        instance.records.event(TimeToTrain(summary["time_to_train_s"]))
    if training.clean_dir and keeper is not None:
        keeper.clean()
        summary["checkpoint"] = keeper.newest
    return summary


def _seed(seed: int) -> None:
    """Start the generators that initial weights come from; some Keras versions draw seeds from Python's own."""
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
