"""Checkpoints: all of the state of training, complete or absent."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from ipulaunch.configs.errors import DataError, JobError
from ipulaunch.configs.runs.checkpoints import MANIFEST, STATE, checkpoint_name, facts_of, found_in, half_written_in
from ipulaunch.configs.runs.directory import temporary_beside, write_whole
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.data_pipeline.records.archive import read_arrays
from ipulaunch.workers.lifecycle.failures import NO_SPACE, room_in

_LARGEST_UPDATE = 1 << 62


class Checkpoint(NamedTuple):
    """A checkpoint that was read: its arrays, in the order they were given, and what was written beside them."""

    path: Path
    weights: List[np.ndarray]
    optimizer: List[np.ndarray]
    more: List[np.ndarray]  # other state of the training step
    facts: Dict[str, Any]

    @property
    def update(self) -> int:
        return int(self.facts["update"])


def save(
    directory: Path,
    facts: Dict[str, Any],
    *,
    weights: Sequence[np.ndarray],
    names: Sequence[str],
    optimizer: Sequence[np.ndarray] = (),
    more: Sequence[np.ndarray] = (),
) -> Path:
    """Write all state and facts, among them the update; the checkpoint appears under its name only when whole."""
    final = directory / checkpoint_name(facts["update"])
    temporary = temporary_beside(final)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        # One level alone: a run directory that was removed is not to come back with nothing but checkpoints in it.
        directory.mkdir(exist_ok=True)
        temporary.mkdir()
        groups = {"weight": weights, "optimizer": optimizer, "more": more}
        _write(temporary, {"facts": facts, "names": list(names)}, groups)
        shutil.rmtree(final, ignore_errors=True)  # of a run that was resumed before it
        temporary.rename(final)
        _sync(directory)
    except BaseException as error:
        room = room_in(directory)  # as we found it, not as it is without what we have begun
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            needed = sum(array.nbytes for array in (*weights, *optimizer, *more)) / 2**20
            raise JobError(
                f"no space left for the checkpoint of update {facts['update']}: it needs {needed:.3f} MiB, {room}",
                hint="make room there, then resume; the checkpoints before it are complete",
            ) from error
        raise
    return final


def _write(directory: Path, manifest: Dict[str, Any], groups: Dict[str, Sequence[np.ndarray]]) -> None:
    arrays: Dict[str, Any] = {
        f"{group}_{i:08}": array for group, members in groups.items() for i, array in enumerate(members)
    }
    with (directory / STATE).open("w+b") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        digest = _sha256(file)
    write_whole(directory / MANIFEST, json.dumps({**manifest, "sha256": {STATE: digest}}, indent=1) + "\n")
    _sync(directory)


def _sync(directory: Path) -> None:
    """A rename lasts once the directory that holds the name is on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(file: Any) -> str:
    digest = hashlib.sha256()
    for piece in iter(lambda: file.read(1 << 20), b""):
        digest.update(piece)
    return digest.hexdigest()


def load(path: Path) -> Checkpoint:
    """A checkpoint whose checksum holds; nothing in its files is ever executed."""
    try:
        manifest = parse_json(read_text(path / MANIFEST))
        facts, digest = manifest["facts"], manifest["sha256"][STATE]
        if type(facts["update"]) is not int or not 0 <= facts["update"] <= _LARGEST_UPDATE:
            raise ValueError(f"its update is {facts['update']!r}")
        with (path / STATE).open("rb") as file:
            found = _sha256(file)
            if found != digest:
                raise ValueError(f"{STATE} has the checksum {found[:12]}, its manifest says {str(digest)[:12]}")
            file.seek(0)
            # They are not packed: together they cannot be larger than the file.
            arrays = read_arrays(file, lambda name: True, os.fstat(file.fileno()).st_size)
            groups = {
                group: [arrays[name] for name in sorted(arrays) if name.startswith(f"{group}_")]
                for group in ("weight", "optimizer", "more")
            }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a complete checkpoint: {error}") from error
    return Checkpoint(path, groups["weight"], groups["optimizer"], groups["more"], facts)


def loss_of(path: Path) -> float:
    """The training loss of a checkpoint; infinite if it has none."""
    try:
        return mean_loss(facts_of(path))
    except (OSError, ValueError, KeyError, TypeError):
        return math.inf


def mean_loss(facts: Mapping[str, Any]) -> float:
    """The mean training loss since the last log, or where a log was just written the one in it; infinite without."""
    try:
        since_log = facts["since_log"]
        updates = float(since_log["updates"])
        loss = float(since_log["sums"]["loss"]) / updates if updates else float(since_log["logged"]["loss"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return math.inf
    return loss if math.isfinite(loss) else math.inf


def run_of(path: Path) -> Optional[str]:
    """The directory of the run that wrote a checkpoint; nothing where it does not say."""
    try:
        return str(facts_of(path)["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def newest_whole(directory: Path, tell: Callable[[str], None] = lambda reason: None) -> Optional[Checkpoint]:
    """The newest checkpoint that can be read; skips damaged ones, and gives the reasons to `tell`."""
    for path in reversed(found_in(directory)):
        try:
            return load(path)
        except DataError as error:
            tell(error.message)
    return None


def sweep(directory: Path) -> None:
    """Remove what a process that was killed left half written, or half removed."""
    for path in half_written_in(directory):
        shutil.rmtree(path, ignore_errors=True)


def prune(saved: List[Path], keep: int, best: Optional[Path]) -> List[Path]:
    """Remove all but the newest ones and the best; returns what is left."""
    kept = [path for index, path in enumerate(saved) if path == best or index >= len(saved) - keep]
    for path in saved:
        if path not in kept:
            # Under a hidden name first: a checkpoint that is half removed must not look like one.
            hidden = temporary_beside(path)
            shutil.rmtree(hidden, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):  # somebody has removed it by hand
                path.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)
    return kept
