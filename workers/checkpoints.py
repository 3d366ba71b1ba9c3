"""Checkpoints: all of the state of training, complete or absent."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.run_directory import write_whole

_STATE, _MANIFEST = "state.npz", "manifest.json"
_PREFIX = "update-"


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
    final = directory / f"{_PREFIX}{facts['update']:08}"
    temporary = directory / f".{final.name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        groups = {"weight": weights, "optimizer": optimizer, "more": more}
        _write(temporary, {"facts": facts, "names": list(names)}, groups)
        shutil.rmtree(final, ignore_errors=True)  # of a run that was resumed before it
        temporary.rename(final)
        _sync(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def _write(directory: Path, manifest: Dict[str, Any], groups: Dict[str, Sequence[np.ndarray]]) -> None:
    arrays: Dict[str, Any] = {
        f"{group}_{i:08}": array for group, members in groups.items() for i, array in enumerate(members)
    }
    with (directory / _STATE).open("w+b") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        digest = _sha256(file)
    write_whole(directory / _MANIFEST, json.dumps({**manifest, "sha256": {_STATE: digest}}, indent=1) + "\n")
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
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        facts, digest = manifest["facts"], manifest["sha256"][_STATE]
        if not isinstance(facts["update"], int):
            raise ValueError(f"its update is {facts['update']!r}")
        with (path / _STATE).open("rb") as file:
            found = _sha256(file)
            if found != digest:
                raise ValueError(f"{_STATE} has the checksum {found[:12]}, its manifest says {str(digest)[:12]}")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                groups = {
                    group: [arrays[name] for name in sorted(arrays.files) if name.startswith(f"{group}_")]
                    for group in ("weight", "optimizer", "more")
                }
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no whole checkpoint: {error}") from error
    return Checkpoint(path, groups["weight"], groups["optimizer"], groups["more"], facts)


def found_in(directory: Path) -> List[Path]:
    """The checkpoints of a directory, the oldest first: of a run, of its checkpoints, or one alone."""
    if (directory / _MANIFEST).is_file():
        return [directory]
    inside = directory / "checkpoints"
    where = inside if inside.is_dir() else directory
    return sorted(path for path in where.glob(f"{_PREFIX}*") if path.is_dir())


def newest_whole(directory: Path) -> Optional[Checkpoint]:
    """The newest checkpoint that can be read; a damaged one counts as absent."""
    for path in reversed(found_in(directory)):
        try:
            return load(path)
        except DataError:
            continue
    return None


def sweep(directory: Path) -> None:
    """Remove what a process that was killed left half written, or half removed."""
    for path in directory.glob(f".{_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def prune(saved: List[Path], keep: int, best: Optional[Path]) -> List[Path]:
    """Remove all but the newest ones and the best; returns what is left."""
    kept = [path for index, path in enumerate(saved) if path == best or index >= len(saved) - keep]
    for path in saved:
        if path not in kept:
            # Under a hidden name first: a checkpoint that is half removed must not look like one.
            hidden = path.with_name(f".{path.name}.removed")
            path.rename(hidden)
            shutil.rmtree(hidden, ignore_errors=True)
    return kept
