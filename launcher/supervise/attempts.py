"""Starting a run again: from which update, and how often."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from typing import NamedTuple, Optional

from ipulaunch.configs.errors import JobError
from ipulaunch.configs.runs.checkpoints import checkpoints_of, newest_update
from ipulaunch.configs.runs.directory import RunDirectory, writable, write_whole
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.configs.settings.survival import Survival
from ipulaunch.launcher.supervise.endings import attempt_of
from ipulaunch.launcher.supervise.progress import progress_of
from ipulaunch.launcher.supervise.verdict import Verdict
from ipulaunch.topology import Plan

LONGEST_WAIT_S = 600.0  # before a restart, unless the first one is to wait longer


class Restart(NamedTuple):
    """The next attempt of a run that failed."""

    number: int
    most: int
    wait_s: float


def next_restart(
    verdict: Verdict, survival: Survival, restarts: int, has_trained: bool, in_vain: int = 0
) -> Optional[Restart]:
    """The restart after this verdict, or None. It waits longer after restarts that got no further.

    A job that never made an update would fail in the same way again. Wrong settings, data and plans stay wrong. And
    nobody restarts a run that somebody has stopped.
    """
    if verdict.exit_code != JobError.exit_code or verdict.was_asked_to_stop or not has_trained:
        return None
    if restarts >= survival.max_restarts:
        return None
    first_s = survival.restart_backoff_s
    wait_s = min(first_s * 2.0 ** min(in_vain, 64), max(first_s, LONGEST_WAIT_S))
    return Restart(restarts + 1, survival.max_restarts, wait_s)


def after_restarts(verdict: Verdict, survival: Survival, restarts: int) -> Verdict:
    """The last verdict, with the number of restarts before it."""
    if verdict.exit_code != JobError.exit_code or not restarts:
        return verdict
    return dataclasses.replace(verdict, restarts=restarts, max_restarts=survival.max_restarts)


def lost_checkpoint(run: RunDirectory, job: Job) -> str:
    """A warning if the run has written checkpoints and all of them are gone; else an empty text."""
    if newest_update(run, job) is not None:
        return ""
    written = max(progress_of(each).kept for each in [run, *map(RunDirectory, run.attempts.glob("*"))])
    if not written:
        return ""
    gone = f"update {written} was kept, and there is no checkpoint in {checkpoints_of(run, job)} now"
    return f"{gone}: the training starts from the beginning"


def begin_again(run: RunDirectory, plan: Plan, job: Job) -> Job:
    """Prepare the run for another attempt, which continues from the newest checkpoint; returns its job."""
    with writable(run):
        return _begin_again(run, plan, job)


def _begin_again(run: RunDirectory, plan: Plan, job: Job) -> Job:
    kept = run.attempts / str(attempt_of(run))
    kept.mkdir(parents=True)
    for path in [*run.path.glob("instance-*"), run.engine_log]:
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
