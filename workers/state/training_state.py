"""The state of a training: what a checkpoint holds, and how it comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError, JobError
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.workers.backends.interface import Backend, Trained
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import (
    create_variables,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
)
from ipulaunch.workers.models.precision import precision
from ipulaunch.workers.models.variables import read_variable, read_variables
from ipulaunch.workers.state import checkpoints
from ipulaunch.workers.state.checkpoints import Checkpoint


class TrainingState:
    """The weights, the state of the optimizer, and what else changes from update to update."""

    def __init__(self, model: Any, optimizer: Any, more: Any) -> None:
        self.model, self.optimizer, self.more = model, optimizer, list(more)

    @property
    def learning_rate(self) -> float:
        """The rate of the last update."""
        rate = self.optimizer.learning_rate
        return float(read_variable(rate(self.optimizer.iterations - 1) if callable(rate) else rate))

    def save(self, directory: Path, facts: Dict[str, Any]) -> Path:
        """Write a checkpoint; the facts have its update. Refuses weights that are not finite."""
        weights = read_variables(self.model.weights)
        if not all(np.isfinite(weight).all() for weight in weights):
            raise JobError(
                f"the weights are not finite any more after update {facts['update']}",
                hint="lower the learning rate, or raise the precision; then resume, or start again",
            )
        return checkpoints.save(
            directory,
            facts,
            weights=weights,
            names=[weight.name for weight in self.model.weights],
            optimizer=optimizer_state(self.optimizer),
            more=read_variables(self.more),
        )

    def copy(self) -> Checkpoint:
        """What a checkpoint would hold now, in memory."""
        create_variables(self.optimizer, self.model.trainable_variables)
        weights, more = read_variables(self.model.weights), read_variables(self.more)
        return Checkpoint(Path("memory"), weights, optimizer_state(self.optimizer), more, {"update": 0})

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue where a checkpoint was written."""
        self.restore_weights(checkpoint)
        restore_optimizer(self.optimizer, self.model.trainable_variables, checkpoint.optimizer)
        for variable, value in zip(self.more, checkpoint.more):
            if tuple(variable.shape) != value.shape:
                raise DataError(
                    f"{checkpoint.path}: {variable.name} is {value.shape}, expected {tuple(variable.shape)}"
                )
            variable.assign(value)

    def restore_weights(self, checkpoint: Checkpoint) -> None:
        """Take the weights of a checkpoint of the same model."""
        weights, given = self.model.weights, checkpoint.weights
        for position, weight in enumerate(weights):
            if position >= len(given) or tuple(weight.shape) != given[position].shape:
                there = given[position].shape if position < len(given) else "nothing"
                raise DataError(
                    f"{checkpoint.path}: {weight.name} is {there}, the model has {tuple(weight.shape)}",
                    hint="was it written by another model or with other settings?",
                )
        if len(given) > len(weights):
            raise DataError(f"{checkpoint.path} holds {len(given)} weights, the model has {len(weights)}")
        for weight, value in zip(weights, given):
            weight.assign(np.asarray(value))


def prepare_training(backend: Backend[Any], events: HostEvents, *, native_half: bool) -> Tuple[Trained, TrainingState]:
    """The network of the settings, ready for fit() on a backend, and the state that fit() changes."""
    settings = backend.settings
    with backend.scope(), precision(settings.training.precision):
        model = build_model(network_of(settings), backend.dropout, native_half=native_half)
        optimizer = make_optimizer(settings, backend.batch, events.updates_per_epoch)
        trained: Trained = backend.prepare(model, optimizer, measures_of(settings), events)
    return trained, TrainingState(model, optimizer, trained.more)
