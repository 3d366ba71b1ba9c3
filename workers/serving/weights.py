"""The weights that are exported: of the newest whole checkpoint of a run or a directory, or random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.exports import ExportedWeights
from ipulaunch.configs.runs.checkpoints import checkpoints_of
from ipulaunch.configs.runs.directory import records_of
from ipulaunch.configs.runs.job import Job, job_of
from ipulaunch.topology.planning.identity import network_of_training, require_same
from ipulaunch.workers.state import checkpoints
from ipulaunch.workers.state.training_state import TrainingState
from ipulaunch.workers.trainers.model_dir import notes_of

_HINT = "export it with the settings of its run: ipulaunch export RUN takes them"


def load_weights(model: Any, job: Job, source: Optional[Path]) -> Tuple[ExportedWeights, List[str]]:
    """Give a model the weights of a checkpoint of the same network; returns whose they are, and warnings."""
    if source is None:
        return ExportedWeights(), ["no checkpoint is given: the weights are random (see --checkpoint-input-dir)"]
    if not source.is_dir():
        raise DataError(f"there is no directory {source}", hint="check --checkpoint-input-dir")
    ours = {"workload": job.workload, "model": job.settings.model.name, **network_of_training(job.settings)}
    damaged: List[str] = []
    checkpoint = checkpoints.newest_whole(source, damaged.append)
    if checkpoint is None:
        return _from_estimator(model, ours, source, damaged), []
    require_same(ours, checkpoint.facts, str(checkpoint.path), _HINT)
    TrainingState(model, None, []).restore_weights(checkpoint)
    facts = checkpoint.facts
    weights = ExportedWeights(str(checkpoint.path.absolute()), checkpoint.update, facts.get("epoch"), facts.get("run"))
    return weights, [f"{reason}; {checkpoint.path.name} is taken instead" for reason in damaged]


def _from_estimator(model: Any, ours: Dict[str, Any], source: Path, damaged: List[str]) -> ExportedWeights:
    """The weights of an Estimator's newest checkpoint, which has them by their names."""
    run = records_of(source)
    inside = checkpoints_of(run, job_of(run))
    directory = inside if inside.is_dir() else source
    path = tf.train.latest_checkpoint(str(directory))
    if path is None:
        raise DataError(
            "; ".join([f"there is no complete checkpoint in {source}", *damaged[:1]]),
            hint="name a run or a directory that has one, or leave --checkpoint-input-dir out for random weights",
        )
    try:
        notes = notes_of(directory)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{directory} has checkpoints that are not known to be of this network: {error}",
            hint="name the directory of a training that ipulaunch has begun",
        ) from error
    require_same(ours, notes, path, _HINT)
    reader = tf.train.load_checkpoint(path)
    there = reader.get_variable_to_shape_map()
    for weight in model.weights:
        name = weight.name.partition(":")[0]
        if there.get(name) != list(weight.shape):
            raise DataError(f"{path}: {name} is {there.get(name, 'nothing')}, the model has {list(weight.shape)}")
        weight.assign(np.asarray(reader.get_tensor(name)))
    update = int(path.rpartition("-")[2]) // int(notes.get("accumulation", 1))
    return ExportedWeights(str(Path(path).absolute()), update, None, notes.get("run"))
