"""A run that is started again: where it left off, and how often it may."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
from pathlib import Path
from typing import NamedTuple, Optional

from ipulaunch.configs.errors import JobError
from ipulaunch.configs.runs.directory import RunDirectory, writable, write_whole
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.configs.settings.survival import Survival
from ipulaunch.launcher.supervise.endings import attempt_of
from ipulaunch.launcher.supervise.events import Follower
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
    """The restart after this verdict, if there is to be one; it waits longer after others that got no further.

    A job that never made an update would fail in the same way again; settings, data and plans that are wrong are
    as wrong the next time; and what was stopped on request is not started against the will of who stopped it.
    """
    if verdict.exit_code != JobError.exit_code or verdict.was_asked_to_stop or not has_trained:
        return None
    if restarts >= survival.max_restarts:
        return None
    first_s = survival.restart_backoff_s
    wait_s = min(first_s * 2.0 ** min(in_vain, 64), max(first_s, LONGEST_WAIT_S))
    return Restart(restarts + 1, survival.max_restarts, wait_s)


def after_restarts(verdict: Verdict, survival: Survival, restarts: int) -> Verdict:
    """The last verdict, which says how often the run was started again before."""
    if verdict.exit_code != JobError.exit_code or not restarts:
        return verdict
    used = f"restarts: {restarts} of {survival.max_restarts} (--max-restarts)"
    return dataclasses.replace(verdict, details=(used, *verdict.details))


def has_checkpoint(run: RunDirectory, job: Job) -> bool:
    """Whether there is something to continue from."""
    return newest_update(run, job) is not None


def newest_update(run: RunDirectory, job: Job) -> Optional[int]:
    """The update of the newest checkpoint, by its name: whether it is whole, only a reader can tell."""
    pattern = r"update-(\d+)" if job.settings.api == KERAS else r"model\.ckpt-(\d+)\.index"
    found = (re.fullmatch(pattern, path.name, re.ASCII) for path in _directory(run, job).glob("*"))
    return max((int(match.group(1)) for match in found if match), default=None)


def lost_checkpoint(run: RunDirectory, job: Job) -> str:
    """What to say of a run that has written checkpoints, of which none is to be found now; nothing of others."""
    if has_checkpoint(run, job):
        return ""
    written = max(map(_last_written, [run, *map(RunDirectory, run.attempts.glob("*"))]))
    if not written:
        return ""
    directory = _directory(run, job)
    return f"update {written} was kept, and there is no checkpoint in {directory} now: the training begins anew"


def _last_written(run: RunDirectory) -> int:
    """The update of the last checkpoint that the records of one attempt tell of; 0 where they tell of none."""
    follower, last = Follower(run, 1), 0  # instance 0 writes them
    while True:
        records = follower.look()
        if not records:
            break
        last = max([last, *(record["update"] for record in records if record["event"] == "checkpoint")])
    follower.close()
    return last


def _directory(run: RunDirectory, job: Job) -> Path:
    """Where the checkpoints of a run are."""
    settings = job.settings
    elsewhere = settings.training.checkpoint_output_dir if settings.api == KERAS else settings.estimator_run.model_dir
    return Path(elsewhere) if elsewhere else run.checkpoints


def begin_again(run: RunDirectory, plan: Plan, job: Job) -> Job:
    """Make the run ready for another attempt, which continues from its newest checkpoint; returns its job."""
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
