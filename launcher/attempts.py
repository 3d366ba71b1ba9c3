"""A run that is started again: where it left off, and how often it may."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path
from typing import NamedTuple, Optional

from ipulaunch.configs.errors import JobError
from ipulaunch.configs.estimators import KERAS
from ipulaunch.configs.job import Job, to_yaml
from ipulaunch.configs.run_directory import RunDirectory, write_whole
from ipulaunch.configs.survival import Survival
from ipulaunch.launcher.verdict import Verdict
from ipulaunch.topology import Plan


class Restart(NamedTuple):
    """The next attempt of a run that failed."""

    number: int
    most: int
    wait_s: float


def next_restart(verdict: Verdict, survival: Survival, restarts: int, has_checkpoint: bool) -> Optional[Restart]:
    """The restart after this verdict, if there is to be one.

    A job that never wrote a checkpoint would fail in the same way again; settings, data and plans that are wrong are
    as wrong the next time; and what was stopped on request is not started against the will of who stopped it.
    """
    if verdict.exit_code != JobError.exit_code or not has_checkpoint or restarts >= survival.max_restarts:
        return None
    return Restart(restarts + 1, survival.max_restarts, survival.restart_backoff_s * 2**restarts)


def has_checkpoint(run: RunDirectory, job: Job) -> bool:
    """Whether there is something to continue from."""
    if job.settings.api == KERAS:
        elsewhere, name = job.settings.training.checkpoint_output_dir, "update-*"
    else:
        elsewhere, name = job.settings.estimator.model_dir, "model.ckpt-*.index"
    return any((Path(elsewhere) if elsewhere else run.checkpoints).glob(name))


def begin_again(run: RunDirectory, plan: Plan, job: Job) -> Job:
    """Make the run ready for another attempt, which continues from its newest checkpoint; returns its job."""
    number = 1 + len(list(run.attempts.glob("*"))) if run.attempts.is_dir() else 1
    kept = run.attempts / str(number)
    kept.mkdir(parents=True)
    for path in [*run.path.glob("instance-*"), run.engine_log]:
        if path.exists():
            shutil.move(str(path), str(kept / path.name))
    with contextlib.suppress(FileNotFoundError):
        run.stop.unlink()
    make_instances(run, plan)
    training = job.settings.training
    if has_checkpoint(run, job) and job.settings.api == KERAS:  # an Estimator continues in its directory by itself
        training = dataclasses.replace(training, resume=training.checkpoint_output_dir or str(run.path))
    again = job._replace(settings=dataclasses.replace(job.settings, training=training))
    write_whole(run.job, to_yaml(again))
    return again


def make_instances(run: RunDirectory, plan: Plan) -> None:
    """A place for the records of every instance."""
    for placement in plan.placements:
        run.instance(placement.instance).mkdir()
        run.log(placement.instance).touch()
