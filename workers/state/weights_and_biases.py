"""The optional hook for Weights & Biases: instance 0 gives it every row of the history."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, Mapping

from ipulaunch.configs.errors import NotReadyError, StoppedError
from ipulaunch.configs.settings.schema import plain
from ipulaunch.workers.instance import Instance

_PROJECT = "ipulaunch"  # unless WANDB_PROJECT says otherwise
# What a sweep of W&B can compare runs by, and the published names of it.
_SUMMARISED = ("epoch_to_target", "optimization_metric", "samples_per_s", "updates")


class Silent:
    """A hook that nobody asked for."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Do nothing."""

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Do nothing."""


class WandbRun(Silent):
    """A run of W&B. Once it has begun, what goes wrong with it is a warning: the training goes on."""

    def __init__(self, instance: Instance, run: Any) -> None:
        self.instance, self.run, self.is_well = instance, run, True
        # Validation comes last, and goes back to the first checkpoint.
        self._try(lambda metrics: run.define_metric(metrics, step_metric="update"), "*")

    def log(self, row: Mapping[str, Any]) -> None:
        self._try(self.run.log, dict(row))

    def summarise(self, summary: Mapping[str, Any]) -> None:
        """Log what is known at the end; the time to train in minutes, as published."""
        found: Dict[str, Any] = {name: summary[name] for name in _SUMMARISED if summary.get(name) is not None}
        if "time_to_train_s" in summary:
            found["time_to_train"] = summary["time_to_train_s"] / 60
        self._try(self.run.log, found)

    def finish(self, exit_code: int) -> None:
        self._try(lambda code: self.run.finish(exit_code=code), exit_code)

    def _try(self, act: Any, argument: Any) -> None:
        try:
            act(argument)
        except Exception as error:  # noqa: BLE001 - a service elsewhere, reached over a network
            if self.is_well:
                message = f"Weights & Biases does not take what is logged: {type(error).__name__}: {error}"
                self.instance.warn(message)
            self.is_well = False


@contextlib.contextmanager
def wandb_run(instance: Instance) -> Iterator[Silent]:
    """The hook of this instance: silent unless it is asked for, and on all instances but the first."""
    if not (instance.settings.logging.wandb and instance.writes):
        yield Silent()
        return
    run = WandbRun(instance, _begun(instance))
    code = 1
    try:
        yield run
        code = 0
    except StoppedError:  # a stop is not an error
        code = 0
        raise
    finally:
        run.finish(code)


def _begun(instance: Instance) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise NotReadyError(
            f"--wandb is given, and Weights & Biases is not installed: {error}",
            hint="pip install wandb, for the Python that the instances use, or leave --wandb out",
        ) from error
    logging = instance.settings.logging
    try:
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=logging.wandb_run_name or instance.run.path.name,
            tags=list(logging.wandb_tags),
            config={
                "workload": instance.job.workload,
                "replicas": instance.batch.replicas,
                **plain(instance.settings),
            },
            dir=str(instance.run.path),
        )
    except Exception as error:  # its own kinds, which differ between its versions
        raise NotReadyError(
            f"Weights & Biases does not begin: {type(error).__name__}: {error}",
            hint="log in with `wandb login`, give --env WANDB_API_KEY, or set WANDB_MODE=offline and sync later",
        ) from error
