"""Directories: room for the run and its checkpoints, the data to read, and the size of CosmoFlow's volumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from ipulaunch.configs.text import counted
from ipulaunch.launcher.doctor.diagnosis import (
    MISSING,
    NOT_NAMED,
    OK,
    SYNTHETIC,
    WARNING,
    Check,
    Diagnosis,
    UsedDirectory,
    amount,
)
from ipulaunch.launcher.doctor.environment import Environment
from ipulaunch.launcher.engines.registry import ENGINES
from ipulaunch.launcher.launch.needs import Look, looks

GROUP = "directories"
_LEAST, _ENOUGH = 64 << 20, 1 << 30  # bytes: a run's records, and a few checkpoints
_FILES, _FILES_EACH = 200, 10  # of a run, and of each of its instances
_MOST_LISTED = 10_000  # files of a data directory; a large one on a network disk takes minutes to list


def check_places(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Every directory that the run writes and reads."""
    checks = [_run_directory(diagnosis, environment)]
    checks += [
        _room(place, f"name another place with {place.flag}", diagnosis, environment)
        for place in diagnosis.writes
        if set(place.stops) & set(diagnosis.engines)
    ]
    checks += [_readable(place) for place in diagnosis.reads]
    if diagnosis.samples == NOT_NAMED:
        fix = "give --dataset-path, or --synthetic-data cpu for synthetic samples"
        checks.append(Check(GROUP, "data", MISSING, "no directory is named", fix, ENGINES))
    elif diagnosis.samples == SYNTHETIC:
        checks.append(Check(GROUP, "data", OK, "synthetic samples: nothing to read"))
    return checks


def nearest(path: Path) -> Path:
    """The directory itself, or the nearest one above it that exists."""
    return next((place for place in [path, *path.parents] if _exists(place)), Path("/"))


def _run_directory(diagnosis: Diagnosis, environment: Environment) -> Check:
    name, fix = "run directory", "go to a directory where you can write, or name one with --run-dir"
    if diagnosis.run_dir is not None and _exists(diagnosis.run_dir):
        found = f"{diagnosis.run_dir} already exists"
        return Check(GROUP, name, MISSING, found, "name a new one, or leave --run-dir out", ENGINES)
    return _room(UsedDirectory(name, diagnosis.run_dir or diagnosis.runs, "--run-dir"), fix, diagnosis, environment)


def _room(place: UsedDirectory, fix: str, diagnosis: Diagnosis, environment: Environment) -> Check:
    """Whether a directory can be made and written, and has room."""
    name, path, stops = place.name, place.path, place.stops
    there = nearest(path)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Check(GROUP, name, MISSING, f"{there} cannot be written", fix, stops)
    try:
        space = environment.space(there)
    except OSError as error:
        return Check(GROUP, name, WARNING, f"{path}: the free space is unknown: {error.strerror}", fix)
    found = f"{path}: {amount(space.free)} free{_files(space.files)}"
    files = _FILES + _FILES_EACH * diagnosis.instances
    if space.free < _LEAST or (space.files is not None and space.files < files):
        what = "space" if space.free < _LEAST else f"files: a run makes about {files}"
        return Check(GROUP, name, MISSING, found, f"make room there for {what}; or {fix}", stops)
    if space.free < _ENOUGH:
        return Check(GROUP, name, WARNING, found, f"checkpoints may not fit: make room; or {fix}")
    return Check(GROUP, name, OK, found)


def _files(count: Optional[int]) -> str:
    return "" if count is None else f", room for {count:,} files"


def _readable(place: UsedDirectory) -> Check:
    """Whether a directory exists, can be read and holds files."""
    path, fix = place.path, f"check {place.flag}"
    if not path.is_dir():
        found = f"{path} is not a directory" if _exists(path) else f"there is no directory {path}"
        return Check(GROUP, place.name, MISSING, found, fix, ENGINES)
    if not os.access(path, os.R_OK | os.X_OK):
        return Check(GROUP, place.name, MISSING, f"{path} cannot be read", f"chmod it, or {fix}", ENGINES)
    for pattern in place.holds:
        if not any(path.glob(pattern)):
            return Check(GROUP, place.name, MISSING, f"{path} holds no {pattern}", fix, ENGINES)
    if place.holds_any and not any(any(path.glob(pattern)) for pattern in place.holds_any):
        found = f"{path} holds none of {', '.join(place.holds_any)}"
        return Check(GROUP, place.name, MISSING, found, fix, ENGINES)
    count, closed = _look(path)
    if not count:
        return Check(GROUP, place.name, MISSING, f"{path} holds no files", fix, ENGINES)
    found = f"{path}: {counted(count, 'file')}{' or more' if count >= _MOST_LISTED else ''}"
    if closed:
        return Check(GROUP, place.name, MISSING, f"{closed} cannot be read", f"chmod it, or {fix}", ENGINES)
    return Check(GROUP, place.name, OK, found)


def _look(path: Path) -> Tuple[int, str]:
    """The number of files, up to the limit, and the first that cannot be read."""
    count, closed = 0, ""
    for file in _below(path):
        count += 1
        if not closed and not os.access(file, os.R_OK):
            closed = file
        if count >= _MOST_LISTED:
            break
    return count, closed


def _below(path: Path) -> Iterator[str]:
    for directory, _, files in os.walk(path):
        # Hidden files are ours, such as the index. PTH118: ten times as fast.
        yield from (os.path.join(directory, name) for name in files if name[0] != ".")  # noqa: PTH118


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (OSError, ValueError):  # ValueError: a zero byte in it
        return False
    return True


def check_volumes(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Check the size in one record of each split."""
    return (
        []
        if diagnosis.volumes is None
        else [_volume(look, diagnosis.volumes.side) for look in looks(diagnosis.volumes)]
    )


def _volume(look: Look, side: int) -> Check:
    name = f"{look.file.parent.name} volumes"
    if look.wrong:
        return Check(GROUP, name, MISSING, f"{look.file}: {look.wrong}", look.fix, ENGINES)
    return Check(GROUP, name, OK, f"{side} x {side} x {side}, by the first record of {look.file.name}")
