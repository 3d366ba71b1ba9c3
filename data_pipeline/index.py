"""The record index of a data set: every record of every file by number, 16 bytes each."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.tfrecord import RecordPlace, Scan, scan

_FORMAT = 1
_SAVE_EVERY = 4096  # files between two saves, so that an interrupted build goes on where it was
_COLUMNS = ("offsets", "lengths", "counts", "sizes", "times")

Progress = Callable[[int, int], None]  # (files done, files in all)


class FileState(NamedTuple):
    """What tells whether a file has changed since it was indexed."""

    size: int
    time_ns: int


class Entry(NamedTuple):
    """What the index knows of one file."""

    state: FileState
    scan: Scan


class Index(NamedTuple):
    """The records of a data set, in the order of its files."""

    paths: Tuple[Path, ...]
    firsts: np.ndarray  # number of the first record of each file, and the number of all records
    offsets: np.ndarray
    lengths: np.ndarray
    packed: np.ndarray  # by file

    @property
    def records(self) -> int:
        return len(self.offsets)

    def place(self, record: int) -> RecordPlace:
        """The file, the number in it and the byte offset of a record."""
        file = self.file_of(record)
        return RecordPlace(self.paths[file], record - int(self.firsts[file]), int(self.offsets[record]))

    def file_of(self, record: int) -> int:
        return int(np.searchsorted(self.firsts, record, side="right")) - 1


def open_index(paths: Sequence[Path], *, threads: int, progress: Optional[Progress] = None) -> Index:
    """The index of these files of one directory: kept from before where they are unchanged, built where not."""
    if not paths:
        raise DataError("there are no files to index")
    states = [_state(path) for path in paths]
    places = (_place_beside(paths[0].parent), _place_in_cache(paths[0].parent))
    known = _load(places[0]) or _load(places[1]) or {}
    changed = [n for n, path in enumerate(paths) if path.name not in known or known[path.name].state != states[n]]
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(changed), _SAVE_EVERY):
            part = changed[start : start + _SAVE_EVERY]
            for done, (number, found) in enumerate(zip(part, pool.map(scan, [paths[n] for n in part])), start + 1):
                known[paths[number].name] = Entry(states[number], found)
                if progress:
                    progress(len(paths) - len(changed) + done, len(paths))
            _save(places, known)
    return _join(paths, [known[path.name].scan for path in paths])


def kept_at(directory: Path) -> Optional[Path]:
    """Where the index of a directory's files is kept: beside them, in the cache, or nowhere."""
    places = (_place_beside(directory), _place_in_cache(directory))
    return next((place for place in places if place.exists()), None)


def _join(paths: Sequence[Path], scans: Sequence[Scan]) -> Index:
    counts = [len(found.offsets) for found in scans]
    return Index(
        tuple(paths),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([found.offsets for found in scans]),
        np.concatenate([found.lengths for found in scans]),
        np.array([found.is_gzip for found in scans]),
    )


def _state(path: Path) -> FileState:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return FileState(status.st_size, status.st_mtime_ns)


def _place_beside(directory: Path) -> Path:
    return directory / ".ipulaunch-index.npz"


def _place_in_cache(directory: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ipulaunch"
    return cache / f"index-{hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]}.npz"


def _save(places: Sequence[Path], known: Dict[str, Entry]) -> None:
    """Keep what is known in the first of the places that can be written, or in none."""
    entries = list(known.values())
    arrays: Dict[str, Any] = {
        "format": np.array(_FORMAT),
        "names": np.frombuffer("\n".join(known).encode(), np.uint8),
        "sizes": np.array([entry.state.size for entry in entries], np.int64),
        "times": np.array([entry.state.time_ns for entry in entries], np.int64),
        "packed": np.array([entry.scan.is_gzip for entry in entries]),
        "counts": np.array([len(entry.scan.offsets) for entry in entries], np.int64),
        "offsets": np.concatenate([entry.scan.offsets for entry in entries]),
        "lengths": np.concatenate([entry.scan.lengths for entry in entries]),
    }
    for place in places:
        temporary = place.with_name(f"{place.name}.{os.getpid()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                np.savez(file, **arrays)
            temporary.replace(place)
            return
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _load(place: Path) -> Optional[Dict[str, Entry]]:
    """What a saved index knows, by file name; None for one that is absent, damaged or of another format."""
    try:
        if not zipfile.is_zipfile(place):
            return None
        with place.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if int(arrays["format"]) != _FORMAT:
                return None
            names = arrays["names"].tobytes().decode().split("\n")
            columns = {name: arrays[name].astype(np.int64) for name in _COLUMNS}
            packed = arrays["packed"].astype(bool)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
        return None
    firsts = np.concatenate([[0], np.cumsum(columns["counts"])])
    if firsts[-1] != len(columns["offsets"]) or not len(names) == len(packed) == len(columns["sizes"]):
        return None
    known = {}
    for number, name in enumerate(names):
        part = slice(firsts[number], firsts[number + 1])
        state = FileState(int(columns["sizes"][number]), int(columns["times"][number]))
        known[name] = Entry(state, Scan(columns["offsets"][part], columns["lengths"][part], bool(packed[number])))
    return known
