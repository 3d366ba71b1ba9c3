"""What a sweep of hyperparameters compares: how soon a training comes to its target, and how near."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence

from ipulaunch.workers.models.measures import Measure

_MARGIN = 0.02  # below the target, as published: at this distance the metric has fallen to 61 %


def sweep_metrics(rows: Sequence[Dict[str, Any]], measure: Measure, target: float) -> Dict[str, Optional[float]]:
    """The first epoch that is as good as the target, and the optimization metric of the last validation.

    The metric is larger for fewer epochs, and falls like a bell curve with the distance from a target that is missed.
    """
    sign = 1 if measure.better == "higher" else -1
    beyond = [sign * (row[f"val_{measure.name}"] - target) for row in rows]
    reached = (row["epoch"] for row, distance in zip(rows, beyond) if distance >= 0)
    missing, epoch = min(beyond[-1], 0.0), rows[-1]["epoch"]
    metric = math.exp(-0.5 * (missing / _MARGIN) ** 2) / epoch if epoch else None
    return {"epoch_to_target": next(reached, None), "optimization_metric": metric}
