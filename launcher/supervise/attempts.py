"""Preparing a run for another attempt, which continues from the newest checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil

from ipulaunch.configs.runs.checkpoints import checkpoints_of, newest_update
from ipulaunch.configs.runs.directory import RunDirectory, writable, write_whole
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.launcher.supervise.endings import attempt_of
from ipulaunch.launcher.supervise.progress import progress_of
from ipulaunch.topology import Plan


def lost_checkpoint(run: RunDirectory, job: Job) -> str:
    """A warning if the run has written checkpoints and all of them are gone; else an empty text."""
    if newest_update(run, job) is not None:
        return ""
    written = max(progress_of(each).kept for each in [run, *map(run.attempt, run.earlier_attempts())])
    if not written:
        return ""
    gone = f"update {written} was kept, and there is no checkpoint in {checkpoints_of(run, job)} now"
    return f"{gone}: the training starts from the beginning"


def begin_again(run: RunDirectory, plan: Plan, job: Job) -> Job:
    """Prepare the run for another attempt, which continues from the newest checkpoint; returns its job."""
    with writable(run):
        return _begin_again(run, plan, job)


def _begin_again(run: RunDirectory, plan: Plan, job: Job) -> Job:
    kept = run.attempt(attempt_of(run)).path
    kept.mkdir(parents=True)
    for path in [*map(run.instance, run.instances()), run.engine_log]:
        if path.exists():
            shutil.move(str(path), str(kept / path.name))
    for request in (run.stop, run.cancel):
        with contextlib.suppress(FileNotFoundError):
            request.unlink()
    make_instances(run, plan)
    training = job.settings.training
    # An Estimator continues in its directory by itself.
    if job.settings.api == KERAS and newest_update(run, job) is not None:
        training = dataclasses.replace(training, resume=training.checkpoint_output_dir or str(run.path))
    again = job._replace(settings=dataclasses.replace(job.settings, training=training))
    write_whole(run.job, to_yaml(again))
    return again


def make_instances(run: RunDirectory, plan: Plan) -> None:
    """Make a directory for the records of every instance."""
    for placement in plan.placements:
        run.instance(placement.instance).mkdir()
        run.log(placement.instance).touch()
