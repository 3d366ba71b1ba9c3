"""Which run a user means."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ipulaunch.configs.errors import DataError, UsageError, near_miss
from ipulaunch.configs.runs.directory import RunDirectory, whole_run
from ipulaunch.launcher.launch.earlier_runs import all_runs
from ipulaunch.launcher.launch.remembered import remembered_runs
from ipulaunch.launcher.schedulers import record


def find_run(text: str, runs_dir: Path) -> Path:
    """The run that is meant: a directory, or the name of one among the runs, or the id of its job."""
    if not text:
        raise UsageError("the name of the run is empty", hint="ipulaunch ps lists the runs here")
    for path in (Path(text), runs_dir / text):
        if os.path.isdir(path):  # noqa: PTH112 - is_dir() raises on names that are too long
            found = whole_run(Path(os.path.abspath(path)))  # noqa: PTH100 - without the .. in it, and links as they are
            if not RunDirectory(found).plan.is_file():
                raise UsageError(f"{path} is not a run: it has no plan.json")
            return found
    runs = all_runs(runs_dir)
    for path in runs:
        with contextlib.suppress(DataError):
            job = record.read(path)
            if job is not None and job.id == text:
                return path.absolute()
    elsewhere = remembered_runs()
    for path in elsewhere:
        if path.name == text:
            return path
    names = [path.name for path in (*runs, *elsewhere)]
    nothing = f"there are no runs in {runs_dir.absolute()}: give the path of the run, or --runs-dir"
    hint = near_miss(text, names) if names else nothing
    raise UsageError(f"there is no run {text}", hint=hint)
