"""How far a run is, and how long it waits for data, by what it has left in its directory."""

from __future__ import annotations

from typing import NamedTuple, Optional

from ipulaunch.configs.runs.checkpoints import newest_update
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.runs.times import longest_wait, times_in
from ipulaunch.launcher.runs.run_files import read_summary
from ipulaunch.launcher.supervise.progress import last_times, progress_of


class Reached(NamedTuple):
    """How far a run is."""

    update: int
    total: int
    waiting: float  # for data: of the whole training once it has ended, before that since the last row


def how_far(run: RunDirectory, job: Optional[Job], instances: int) -> Reached:
    """How far a run is; a run that has written no events yet may have the checkpoints of an earlier attempt."""
    progress = progress_of(run)
    update = max(progress.position, progress.kept) or (newest_update(run, job) if job else None) or 0
    times = times_in(read_summary(run)) or last_times(run, instances)
    return Reached(update, progress.total_updates, longest_wait(times))
