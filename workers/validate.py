"""Validation: every checkpoint in order, and which of them is best."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from ipulaunch.configs.errors import DataError, JobError, StoppedError
from ipulaunch.configs.runs.events import Validation, WarningEvent
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.topology.networks.host_events import HostEvents
from ipulaunch.workers.backends.interface import Trained
from ipulaunch.workers.feeds import validation_batch, validation_feed, validation_progress
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.models.measures import Measure, measures_of
from ipulaunch.workers.state import checkpoints
from ipulaunch.workers.state.history import History
from ipulaunch.workers.state.identity import network_of_training, require_same
from ipulaunch.workers.state.sweep import sweep_metrics
from ipulaunch.workers.state.training_state import TrainingState


def validate_run(
    instance: Instance,
    source: Source,
    events: HostEvents,
    trained: Trained,
    state: TrainingState,
    saved: Sequence[Path],
    history: Optional[History],
) -> Dict[str, Any]:
    """Evaluate the checkpoints of this run, or those asked for; what the summary says of them."""
    training = instance.settings.training
    micro_size = validation_batch(instance).micro_size

    def validate() -> Dict[str, float]:
        feed = validation_feed(instance, source)
        values = instance.backend.validate(trained, feed, source.samples, micro_size, validation_progress(instance))
        return {f"val_{name}": value for name, value in values.items()}

    asked = training.checkpoint_input_dir
    if asked is not None and instance.writes:
        saved = checkpoints.found_in(Path(asked))
    paths = _agreed(saved, instance.backend.collective.first)
    if not paths and not training.training:
        where = f" in {asked}" if asked else ""
        instance.records.event(WarningEvent(f"there is no checkpoint{where}: random weights are evaluated"))
    rows: List[Dict[str, Any]] = []
    everything: List[Optional[Path]] = [*paths]
    for path in everything or [None]:
        if instance.stop.agreed():
            raise StoppedError(f"stopped on request after the validation of {len(rows)} of {len(paths)} checkpoints")
        row: Dict[str, Any] = {"update": events.total_updates, "epoch": events.epochs}
        if path is not None:
            checkpoint = _whole(instance, path)
            if checkpoint is None:
                continue
            hint = "evaluate it with the settings of its run, which are in its job.yaml"
            require_same(network_of_training(instance.settings), checkpoint.facts, str(path), hint)
            state.restore_weights(checkpoint)
            row = {"checkpoint": path.name, "update": checkpoint.update, "epoch": checkpoint.facts.get("epoch")}
        values = validate()
        instance.records.event(Validation(source.samples, row["update"], row["epoch"], values, row.get("checkpoint")))
        row.update(values)
        if history is not None:
            history.add(row)
        rows.append(row)
    if not rows:
        raise DataError(
            f"none of the checkpoints in {paths[0].parent} is complete",
            hint="name those of another run, or train again",
        )
    if not all(math.isfinite(value) for row in rows for name, value in row.items() if name.startswith("val_")):
        raise JobError("a validation loss is not finite", hint="lower the learning rate, or raise --loss-scaling")
    measure = measures_of(instance.settings)[-1]
    found = judged(rows, measure, training.target_accuracy)
    if instance.settings.logging.sweep:
        found.update(sweep_metrics(rows, measure, training.target_accuracy or instance.settings.usual_target))
    return {"validation_samples": source.samples, **found}


def _agreed(paths: Sequence[Path], first: Callable[[str], str]) -> List[Path]:
    """The checkpoints that instance 0 sees, on all."""
    return [Path(text) for text in json.loads(first(json.dumps([str(path) for path in paths])))]


def _whole(instance: Instance, path: Path) -> Optional[checkpoints.Checkpoint]:
    """A checkpoint that all instances can read; one that is damaged is told, and left out by all."""
    checkpoint, reason = None, f"{path} cannot be read whole by another instance"
    try:
        checkpoint = checkpoints.load(path)
    except DataError as error:
        reason = error.message
    if instance.backend.collective.sum(np.array([checkpoint is None], np.int64))[0]:
        instance.records.event(WarningEvent(f"{reason}; it is not evaluated"))
        return None
    return checkpoint


def judged(rows: Sequence[Dict[str, Any]], measure: Measure, target: Optional[float]) -> Dict[str, Any]:
    """The last values, the best checkpoint, the first that is as good as a target, and by which measure they are."""
    name, sign = f"val_{measure.name}", -1 if measure.better == "higher" else 1
    last = {key: value for key, value in rows[-1].items() if key.startswith("val_")}
    best = min(rows, key=lambda row: (sign * row[name], row["val_loss"]))  # of equals, the one that is surer
    found: Dict[str, Any] = {"metrics": last, "best": best, "judged_by": name}
    if target is not None:
        reached = (row for row in rows if sign * row[name] <= sign * target)
        found["target"] = {"value": target, "reached_by": next(reached, None)}
    return found
