"""Validation: every checkpoint in order, which of them is best, and how near it comes to a target."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from ipulaunch.configs.errors import DataError, JobError, StoppedError
from ipulaunch.configs.runs.events import Validation
from ipulaunch.data_pipeline.sources.source import Source
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.models.measures import Measure, measures_of
from ipulaunch.workers.state.history import History
from ipulaunch.workers.trainers.trainer import Row, Trainer

_MARGIN = 0.02  # below the target, as published: at this distance the metric has fallen to 61 %


def validate(instance: Instance, trainer: Trainer, source: Source, history: Optional[History]) -> Dict[str, Any]:
    """Evaluate the checkpoints of this run, or others if the settings name some; returns their part of the summary."""
    settings, paths = instance.settings, trainer.saved()
    everything: List[Optional[Path]] = [*paths]
    rows: List[Row] = []
    for path in everything or [None]:
        if instance.stop.agreed():
            raise StoppedError(f"stopped on request after the validation of {len(rows)} of {len(paths)} checkpoints")
        with instance.backend.times.part("validation"):
            row = trainer.evaluate(path, source)
        if row is None:
            continue
        values = {name: value for name, value in row.items() if name.startswith("val_")}
        instance.records.event(Validation(source.samples, row["update"], row["epoch"], values, row.get("checkpoint")))
        if history is not None:
            history.add(row)
        rows.append(row)
    if not rows:
        raise DataError(
            f"none of the checkpoints in {paths[0].parent} is complete",
            hint="name those of another run, or train again",
        )
    if not all(math.isfinite(value) for row in rows for name, value in row.items() if name.startswith("val_")):
        raise JobError("a validation loss is not finite", hint=trainer.remedy)
    measure, target = measures_of(settings)[-1], settings.training.target_accuracy
    found = judged(rows, measure, target)
    if settings.logging.sweep:
        found.update(sweep_metrics(rows, measure, target or settings.usual_target))
    return {"validation_samples": source.samples, **found}


def judged(rows: Sequence[Row], measure: Measure, target: Optional[float]) -> Dict[str, Any]:
    """The last values, the best checkpoint, the first that is as good as a target, and by which measure they are."""
    name, sign = f"val_{measure.name}", -1 if measure.better == "higher" else 1
    last = {key: value for key, value in rows[-1].items() if key.startswith("val_")}
    best = min(rows, key=lambda row: (sign * row[name], row["val_loss"]))  # of equals, the one that is surer
    found: Dict[str, Any] = {"metrics": last, "judged_by": name}
    if measure.better != "higher" or best[name] > 0:  # of checkpoints that get nothing right, none is best
        found["best"] = best
    if target is not None:
        reached = (row for row in rows if sign * row[name] <= sign * target)
        found["target"] = {"value": target, "reached_by": next(reached, None)}
    return found


def sweep_metrics(rows: Sequence[Row], measure: Measure, target: float) -> Dict[str, Optional[float]]:
    """The first epoch that is as good as the target, and the optimization metric of the last validation.

    The metric is larger for fewer epochs, and falls like a bell curve with the distance from a target that is missed.
    """
    sign = 1 if measure.better == "higher" else -1
    beyond = [sign * (row[f"val_{measure.name}"] - target) for row in rows]
    reached = (row["epoch"] for row, distance in zip(rows, beyond) if distance >= 0)
    missing, epoch = min(beyond[-1], 0.0), rows[-1]["epoch"]
    metric = math.exp(-0.5 * (missing / _MARGIN) ** 2) / epoch if epoch else None
    return {"epoch_to_target": next(reached, None), "optimization_metric": metric}
