"""Checkpoints on disk: how they are named, and where those of a run lie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from ipulaunch.configs.runs.directory import RunDirectory, is_file, records_of
from ipulaunch.configs.runs.job import Job, job_of
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.configs.settings.estimators import KERAS

STATE, MANIFEST = "state.npz", "manifest.json"  # of a checkpoint; the manifest is written last

_PREFIX = "update-"
ESTIMATOR_PREFIX = "model.ckpt"  # TensorFlow adds the step, and an ending for each of its files


def checkpoint_name(update: int) -> str:
    """The name of a checkpoint; sorted by name, the oldest is the first."""
    return f"{_PREFIX}{update:08}"


def estimator_checkpoint_name(step: int) -> str:
    """The name of an Estimator's checkpoint, without the endings of its files; a step is a micro-batch."""
    return f"{ESTIMATOR_PREFIX}-{step}"


def checkpoints_of(run: RunDirectory, job: Optional[Job]) -> Path:
    """Where the checkpoints of a run are: in its directory, unless its job says another place."""
    if job is None:
        return run.checkpoints
    settings = job.settings
    elsewhere = settings.training.checkpoint_output_dir if settings.api == KERAS else settings.estimator_run.model_dir
    return Path(elsewhere) if elsewhere else run.checkpoints


def checkpoints_in(directory: Path) -> List[Path]:
    """The checkpoints of a directory by their names, the oldest first; whether they are whole, only a reader knows."""
    return sorted(path for path in directory.glob(f"{_PREFIX}*") if path.is_dir())


def found_in(directory: Path) -> List[Path]:
    """The checkpoints of a directory, the oldest first: of a run, of its checkpoints, or one alone."""
    if any(is_file(directory / name) for name in (MANIFEST, STATE)):
        return [directory]
    run = records_of(directory)
    inside = checkpoints_of(run, job_of(run))
    return checkpoints_in(inside if inside.is_dir() else directory)


def facts_of(checkpoint: Path) -> Dict[str, Any]:
    """What was written down beside the arrays of a checkpoint; an OSError or a ValueError if it cannot be read."""
    manifest = parse_json(read_text(checkpoint / MANIFEST))
    if not isinstance(manifest, dict) or not isinstance(manifest.get("facts"), dict):
        raise ValueError(f"{checkpoint / MANIFEST} has no facts")
    facts: Dict[str, Any] = manifest["facts"]
    return facts


def half_written_in(directory: Path) -> List[Path]:
    """What processes that were killed left half written, or half removed."""
    return sorted(directory.glob(f".{_PREFIX}*"))


def newest_update(run: RunDirectory, job: Job) -> Optional[int]:
    """The update of the newest checkpoint by its name, with Keras or with an Estimator."""
    names = rf"{_PREFIX}(\d+)" if job.settings.api == KERAS else rf"{re.escape(ESTIMATOR_PREFIX)}-(\d+)\.index"
    found = (re.fullmatch(names, path.name, re.ASCII) for path in checkpoints_of(run, job).glob("*"))
    return max((int(match.group(1)) for match in found if match), default=None)
