"""The settings that say where else the results of a run go, and how they are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from ipulaunch.configs.settings.schema import setting


@dataclass(frozen=True)
class Logging:
    """Weights & Biases, MLPerf's time to train, and what sweeps of hyperparameters compare."""

    mlperf: bool = setting(
        False,
        "load the compiled program before the clock of the training starts, as MLPerf measures time to train",
        flag="--mlperf-logging/--no-mlperf-logging",
    )
    sweep: bool = setting(
        False,
        "compute what sweeps of hyperparameters compare: the epoch that reaches the target, and an optimization metric",
        flag="--sweep/--no-sweep",
    )
    wandb: bool = setting(False, "also log to Weights & Biases, which must be installed", flag="--wandb/--no-wandb")
    wandb_run_name: Optional[str] = setting(
        None, "name of the run in Weights & Biases; by default that of the run directory", flag="--wandb-run-name"
    )
    wandb_tags: Tuple[str, ...] = setting((), "tags of the run in Weights & Biases", flag="--wandb-tags")
