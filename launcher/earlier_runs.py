"""Runs that lie here already, and the one that a new run continues."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import List, Optional

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.run_directory import RUNS, RunDirectory
from ipulaunch.configs.workloads import Resolved

AUTO = "auto"


def with_resume(resolved: Resolved) -> Resolved:
    """The settings with the run to resume as a path; `auto` with no run to resume starts anew."""
    asked = resolved.settings.training.resume
    if asked is None:
        return resolved
    found = newest_run(resolved.workload) if asked == AUTO else Path(asked)
    if found is not None and not found.is_dir():
        raise DataError(f"there is no run or checkpoint {asked}", hint="name a run directory, or use --resume auto")
    given = resolved.given if found else resolved.given - {"training.resume"}
    training = dataclasses.replace(resolved.settings.training, resume=str(found.absolute()) if found else None)
    return resolved._replace(settings=dataclasses.replace(resolved.settings, training=training), given=given)


def newest_run(workload: str) -> Optional[Path]:
    """The newest run of a workload here that has written a checkpoint."""
    runs: List[Path] = sorted(Path(RUNS).glob(f"{workload}-*"), key=lambda path: path.stat().st_mtime)
    return next((path for path in reversed(runs) if RunDirectory(path).has_checkpoint), None)
