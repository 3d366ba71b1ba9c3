"""Validation: every checkpoint in order, and which of them is best."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from ipulaunch.configs.errors import JobError, StoppedError
from ipulaunch.data_pipeline.source import Source
from ipulaunch.data_pipeline.stream import validation_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.host_events import HostEvents
from ipulaunch.workers import checkpoints
from ipulaunch.workers.history import History
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.measures import Measure, measures_of
from ipulaunch.workers.state import TrainingState


def validate_run(
    at: Instance,
    source: Source,
    events: HostEvents,
    trained: Any,
    state: TrainingState,
    saved: Sequence[Path],
    history: Optional[History],
) -> Dict[str, Any]:
    """Evaluate the checkpoints of this run, or those asked for; what the summary says of them."""
    training = at.job.settings.training
    batch = Batch(training.validation_micro_batch_size or at.batch.micro_size, at.batch.replicas, 1)
    trained.make = getattr(source, "make", None)

    def validate() -> Dict[str, float]:
        stream = at.sent(validation_stream(source, batch, at.place, threads=at.threads))
        values: Dict[str, float] = at.backend.validate(trained, stream, source.samples, batch.micro_size)
        return {f"val_{name}": value for name, value in values.items()}

    asked = training.checkpoint_input_dir
    if asked is not None and at.writes:
        saved = checkpoints.found_in(Path(asked))
    paths = _agreed(saved, at.backend.collective.first)
    if not paths and not training.training:
        where = f" in {asked}" if asked else ""
        at.records.event("warning", message=f"there is no checkpoint{where}: random weights are evaluated")
    rows: List[Dict[str, Any]] = []
    everything: List[Optional[Path]] = [*paths]
    for path in everything or [None]:
        if at.stop.agreed():
            raise StoppedError(f"stopped on request after the validation of {len(rows)} of {len(paths)} checkpoints")
        row: Dict[str, Any] = {"update": events.total_updates, "epoch": events.epochs}
        if path is not None:
            checkpoint = checkpoints.load(path)
            state.restore_weights(checkpoint)
            row = {"checkpoint": path.name, "update": checkpoint.update, "epoch": checkpoint.facts.get("epoch")}
        row.update(validate())
        at.records.event("validation", **row)
        if history is not None:
            history.add(row)
        rows.append(row)
    if not all(math.isfinite(value) for row in rows for name, value in row.items() if name.startswith("val_")):
        raise JobError("a validation loss is not finite", hint="lower the learning rate, or raise --loss-scaling")
    return _judged(rows, measures_of(at.job.settings)[-1], training.target_accuracy)


def _agreed(paths: Sequence[Path], first: Callable[[str], str]) -> List[Path]:
    """The checkpoints that instance 0 sees, on all."""
    return [Path(text) for text in json.loads(first(json.dumps([str(path) for path in paths])))]


def _judged(rows: Sequence[Dict[str, Any]], measure: Measure, target: Optional[float]) -> Dict[str, Any]:
    """The last values, the best checkpoint, and the first that is as good as a target."""
    name, sign = f"val_{measure.name}", -1 if measure.better == "higher" else 1
    last = {key: value for key, value in rows[-1].items() if key.startswith("val_")}
    best = min(rows, key=lambda row: (sign * row[name], row["val_loss"]))  # of equals, the one that is surer
    found: Dict[str, Any] = {"metrics": last, "best": best}
    if target is not None:
        reached = (row for row in rows if sign * row[name] <= sign * target)
        found["target"] = {"value": target, "reached_by": next(reached, None)}
    return found
