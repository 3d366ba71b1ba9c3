"""The record index of a data set: every record of every file by number, 16 bytes each, and what its source needs of it.

A source may name `Contents`: columns that are found while the records are, so that nobody parses them again.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.parallel import in_order
from ipulaunch.data_pipeline.records.kept_index import Entry, FileState, load, save
from ipulaunch.data_pipeline.records.tfrecord import HEADER, Collector, RecordPlace, Scan, scan

_SAVE_INTERVAL_S = 10.0  # so that a killed build continues where it stopped

Progress = Callable[[int, int], None]  # (files done, files in all)


class Paths(Sequence[Path]):
    """Files of one directory. Their names are one string, as a Path for each would take 500 bytes."""

    def __init__(self, paths: Sequence[Path]) -> None:
        names = [os.fsencode(path.name) for path in paths]
        self.directory, self.names = paths[0].parent, b"".join(names)
        self.ends = np.fromiter(itertools.accumulate(map(len, names)), np.int64, len(names))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: Any) -> Any:
        number = range(len(self))[number]
        start = int(self.ends[number - 1]) if number else 0
        return self.directory / os.fsdecode(self.names[start : int(self.ends[number])])


class Contents(ABC):
    """What a kind of set needs of each record, beside its place."""

    @abstractmethod
    def collector(self) -> Collector:
        """Looks into the records of one file."""

    @abstractmethod
    def fit(self, scan: Scan) -> bool:
        """Whether the contents of a scan are there and sound: anybody may have written an index beside a data set."""


class Index(NamedTuple):
    """The records of a data set, in the order of its files."""

    paths: Sequence[Path]
    firsts: np.ndarray  # number of the first record of each file, then the total
    offsets: np.ndarray
    lengths: np.ndarray
    packed: np.ndarray  # by file
    contents: Dict[str, np.ndarray]
    defects: Tuple[DataError, ...] = ()  # of files whose records end early
    staged: Optional[np.ndarray] = None  # the records that are there, where others are not: in the order of the files

    @property
    def records(self) -> int:
        return len(self.offsets)

    def place(self, record: int) -> RecordPlace:
        """The file of a record, its number in the file, its first byte and its length."""
        file = self.file_of(record)
        return RecordPlace(self.paths[file], record - int(self.firsts[file]), int(self.offsets[record]) - HEADER)

    def there(self, most: int) -> Sequence[int]:
        """The records that are there, among the first ones."""
        return range(most) if self.staged is None else [int(record) for record in self.staged]

    def next_there(self, record: int) -> int:
        """This record, or the next one that is there; after the last one the first."""
        if self.staged is None:
            return record
        return int(self.staged[np.searchsorted(self.staged, record) % len(self.staged)])

    def file_of(self, record: int) -> int:
        return int(np.searchsorted(self.firsts, record, side="right")) - 1


def open_index(
    paths: Sequence[Path],
    *,
    threads: int,
    progress: Optional[Progress] = None,
    tolerant: bool = False,
    contents: Optional[Contents] = None,
    clock: Callable[[], float] = time.monotonic,
) -> Index:
    """The index of these files of one directory: the kept one for unchanged files, a new one for others.

    A damaged file is an error. If `tolerant`, the index has the records before the defect, and reports the defect; it
    does not keep the entry of such a file, so that nobody takes it for a whole one.
    """
    if not paths:
        raise DataError("there are no files to index")
    directory = paths[0].parent
    states = {path.name: _state(path) for path in paths}
    known = load(directory, states)
    changed = [path for path in paths if not _is_current(known.get(path.name), states[path.name], contents)]
    done, next_save = len(paths) - len(changed), clock() + _SAVE_INTERVAL_S
    examined: Any = in_order(functools.partial(_examine, contents), changed, threads)
    try:
        with contextlib.closing(examined):
            for path, entry in zip(changed, examined):
                if entry.scan.defect is not None and not tolerant:
                    raise entry.scan.defect
                known[path.name] = entry
                done += 1
                if progress:
                    progress(done, len(paths))
                if clock() >= next_save:
                    save(directory, known)
                    next_save = clock() + _SAVE_INTERVAL_S
    finally:
        if changed:
            save(directory, known)
    return _join(paths, [known[path.name].scan for path in paths])


def _is_current(entry: Optional[Entry], state: Optional[FileState], contents: Optional[Contents]) -> bool:
    return entry is not None and entry.state == state and (contents is None or contents.fit(entry.scan))


def _examine(contents: Optional[Contents], path: Path) -> Entry:
    state = _state(path)  # before the scan: a write in the meantime makes it a changed file
    return Entry(state, scan(path, contents.collector() if contents else None))


def _state(path: Path) -> Optional[FileState]:
    try:
        status = path.stat()
    except OSError:
        return None  # the scan reports why
    return FileState(status.st_size, status.st_mtime_ns)


def _join(paths: Sequence[Path], scans: List[Scan]) -> Index:
    counts = [len(found.offsets) for found in scans]
    names = set.intersection(*(set(found.contents) for found in scans))
    return Index(
        Paths(paths),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([found.offsets for found in scans]),
        np.concatenate([found.lengths for found in scans]),
        np.array([found.is_gzip for found in scans]),
        {name: np.concatenate([found.contents[name] for found in scans]) for name in names},
        tuple(found.defect for found in scans if found.defect is not None),
    )
