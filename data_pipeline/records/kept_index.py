"""The saved index of a directory's files: beside them, or in a cache if that directory is not writable.

Format 1 had no contents of records; its entries are still read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import numpy as np

from ipulaunch.data_pipeline.records.archive import NotAnArchive, read_arrays
from ipulaunch.data_pipeline.records.tfrecord import FOOTER, HEADER, Scan

_FORMAT = 2
_READABLE = (1, 2)
_COLUMNS = ("offsets", "lengths", "counts", "sizes", "times")
_ARRAYS = {*_COLUMNS, "format", "names", "packed"}
_CONTENTS, _CONTENT_COUNTS = "contents/", "content_counts/"  # each with the name of a column
_LARGEST_FILE = 1 << 60


class FileState(NamedTuple):
    """What tells whether a file has changed since it was indexed."""

    size: int
    time_ns: int


class Entry(NamedTuple):
    """What the index knows of one file."""

    state: Optional[FileState]  # None if the file cannot be examined
    scan: Scan


def load(directory: Path, states: Mapping[str, Optional[FileState]]) -> Dict[str, Entry]:
    """What the saved index knows of a directory's files, by name; of two entries, the one for the current file."""
    known: Dict[str, Entry] = {}
    for place in _places(directory):
        for name, entry in (_read(place) or {}).items():
            if name not in known or entry.state == states.get(name):
                known[name] = entry
    return known


def kept_at(directory: Path) -> Optional[Path]:
    """The place of the newest saved index: beside the files, in the cache, or None."""
    return max(filter(Path.is_file, _places(directory)), key=lambda place: place.stat().st_mtime_ns, default=None)


def save(directory: Path, known: Mapping[str, Entry]) -> None:
    """Save what is known of whole files in the first writable place, if there is one."""
    whole = {name: each for name, each in known.items() if each.state is not None and each.scan.defect is None}
    if not whole:
        return
    entries = list(whole.values())
    arrays: Dict[str, Any] = {
        "format": np.array(_FORMAT),
        "names": np.frombuffer(b"\n".join(map(os.fsencode, whole)), np.uint8),
        "sizes": np.array([entry.state.size for entry in entries if entry.state], np.int64),
        "times": np.array([entry.state.time_ns for entry in entries if entry.state], np.int64),
        "packed": np.array([entry.scan.is_gzip for entry in entries]),
        "counts": np.array([len(entry.scan.offsets) for entry in entries], np.int64),
        "offsets": np.concatenate([entry.scan.offsets for entry in entries]),
        "lengths": np.concatenate([entry.scan.lengths for entry in entries]),
        **_joined_contents([entry.scan.contents for entry in entries]),
    }
    for place in _places(directory):
        # Hosts that share a disk may have processes with the same id.
        temporary = place.with_name(f"{place.name}.{platform.node()}.{os.getpid()}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            file = temporary.open("xb")  # does not follow a link that others put into a shared directory
        except OSError:
            continue
        try:
            with file:
                np.savez(file, **arrays)
            temporary.replace(place)
            return
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _joined_contents(contents: List[Dict[str, np.ndarray]]) -> Dict[str, np.ndarray]:
    """The contents of all files: by name the values, and how many each file has."""
    arrays: Dict[str, np.ndarray] = {}
    for name in {name for each in contents for name in each}:
        arrays[_CONTENTS + name] = np.concatenate([each[name] for each in contents if name in each])
        arrays[_CONTENT_COUNTS + name] = np.array([len(each.get(name, ())) for each in contents], np.int64)
    return arrays


def _places(directory: Path) -> List[Path]:
    beside, home = directory / ".ipulaunch-index.npz", os.environ.get("XDG_CACHE_HOME")
    try:
        cache = Path(home) if home else Path.home() / ".cache"
    except (RuntimeError, KeyError):  # a user without a home, as in some containers; Python 3.8 says KeyError
        return [beside]
    name = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:16]
    return [beside, cache / "ipulaunch" / f"index-{name}.npz"]


def _read(place: Path) -> Optional[Dict[str, Entry]]:
    """What a saved index knows, by file name; None if it is absent, damaged or of another format."""
    try:
        with place.open("rb") as file:
            arrays = read_arrays(file, _is_wanted, os.fstat(file.fileno()).st_size)
        if not set(arrays) >= _ARRAYS or arrays["format"].shape or int(arrays["format"]) not in _READABLE:
            return None
        names = list(map(os.fsdecode, arrays["names"].tobytes().split(b"\n")))
    except (OSError, NotAnArchive):
        return None
    columns = {name: arrays[name].astype(np.int64) for name in _COLUMNS}
    if not _fits(columns, arrays["packed"], len(names)):
        return None
    contents = _contents(arrays, len(names))
    if contents is None:
        return None
    firsts = np.concatenate([[0], np.cumsum(columns["counts"])])
    known = {}
    for number, name in enumerate(names):
        part = slice(firsts[number], firsts[number + 1])
        state = FileState(int(columns["sizes"][number]), int(columns["times"][number]))
        is_gzip = bool(arrays["packed"][number])
        found = Scan(columns["offsets"][part], columns["lengths"][part], is_gzip, contents[number])
        if not found.is_gzip and np.any(found.offsets + found.lengths + FOOTER > state.size):
            return None
        known[name] = Entry(state, found)
    return known


def _is_wanted(name: str) -> bool:
    return name in _ARRAYS or name.startswith((_CONTENTS, _CONTENT_COUNTS))


def _contents(arrays: Dict[str, np.ndarray], files: int) -> Optional[List[Dict[str, np.ndarray]]]:
    """The contents of each file; None if values and counts do not fit together."""
    contents: List[Dict[str, np.ndarray]] = [{} for _ in range(files)]
    for key, values in arrays.items():
        if not key.startswith(_CONTENTS):
            continue
        name = key[len(_CONTENTS) :]
        counts = arrays.get(_CONTENT_COUNTS + name)
        if counts is None or values.ndim != 1 or counts.shape != (files,) or counts.dtype.kind not in "iu":
            return None
        if np.any((counts < 0) | (counts > len(values))) or sum(counts.tolist()) != len(values):
            return None
        ends = np.cumsum(counts)
        for number, (count, end) in enumerate(zip(counts.tolist(), ends.tolist())):
            contents[number][name] = values[end - count : end]
    return contents


def _fits(columns: Dict[str, np.ndarray], packed: np.ndarray, files: int) -> bool:
    """Whether the columns fit together: anybody may have written an index beside a data set."""
    if any(column.ndim != 1 for column in (*columns.values(), packed)) or packed.dtype != bool:
        return False
    if {len(packed), *(len(columns[name]) for name in ("counts", "sizes", "times"))} != {files}:
        return False
    records = len(columns["offsets"])
    counts, places = columns["counts"], np.concatenate([columns["offsets"], columns["lengths"]])
    return bool(
        len(columns["lengths"]) == records
        and np.all((counts >= 0) & (counts <= records))
        and sum(counts.tolist()) == records
        and np.all((places >= 0) & (places < _LARGEST_FILE))
        and np.all(columns["offsets"] >= HEADER)
    )
