"""The state of a run by what it has left in its directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import AbstractSet, Optional

from ipulaunch.configs.errors import INTERRUPTED, IpulaunchError, StoppedError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.configs.text import utc
from ipulaunch.launcher.launch.earlier_runs import FRESH_S, last_sign
from ipulaunch.launcher.schedulers.scheduler import CANCELLED, DONE, FAILED, RUNNING, STOPPED, UNKNOWN, JobState
from ipulaunch.launcher.supervise.claim import has_gone, holder_of
from ipulaunch.launcher.supervise.endings import Ending, attempt_of, read_endings
from ipulaunch.topology import Plan
from ipulaunch.topology.planning.plan import from_json


def plan_of(run: RunDirectory) -> Optional[Plan]:
    """The plan of a run, where it is whole."""
    try:
        return from_json(read_text(run.plan))
    except (OSError, IpulaunchError):
        return None


def state_from_records(
    run: RunDirectory, plan: Optional[Plan], living: AbstractSet[Path], *, is_here: bool
) -> JobState:
    """The state of a run by its records and its signs of life; `living` are the runs with processes here."""
    if plan is None:
        return JobState(UNKNOWN, "its plan cannot be read")
    instances = range(plan.instances)
    if all(run.done(index).exists() for index in instances):
        return JobState(DONE)
    if holder_of(run) is not None or run.path in living:
        return JobState(RUNNING)
    endings = read_endings(run)
    if endings and endings[-1].attempt == attempt_of(run):
        return _ended(endings[-1])
    for index in instances:
        if run.error(index).exists():
            return JobState(FAILED, f"instance {index} has left an error")
    if any(run.stopped(index).exists() for index in instances):
        return JobState(STOPPED, "with a checkpoint")
    newest = last_sign(run)
    # Instances without a launcher show only signs of life. A launcher that has gone has left its record.
    if time.time() - newest < FRESH_S and not run.launcher.exists():
        return JobState(RUNNING)
    if newest and is_here:
        return JobState(FAILED, f"no sign of life since {utc(newest)}")
    if is_here and has_gone(run.launcher):  # programs give no signs of life, and instances none before they have begun
        return JobState(FAILED, "its launcher ended without a verdict")
    return JobState(UNKNOWN, f"no sign of life since {utc(newest)}" if newest else "no records")


def _ended(ending: Ending) -> JobState:
    """What the launcher has noted of the end."""
    word = {0: DONE, StoppedError.exit_code: STOPPED, INTERRUPTED: CANCELLED}.get(ending.exit_code, FAILED)
    return JobState(word, "" if word == DONE else ending.headline)
