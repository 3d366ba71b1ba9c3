"""Copies a data set to a disk of this host before training; the instances of the host share the work.

Every epoch deals the records anew, so each host needs all of them during a training: it copies the whole set, once.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import Callable, Collection, Counter, Iterator, List, Sequence, Tuple

import crc32c

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.configs.runs.directory import made_whole, temporary_beside

_BLOCK = 1 << 22
_SPARE = 0.02  # of the disk, left free for everybody else

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)


def stage(
    files: Sequence[Path], source: Path, target: Path, *, index: int, instances: int, progress: Progress
) -> List[Path]:
    """Copy our part of the files, every instances-th of them; the paths of all files in their new place.

    A file that has a copy with the same size and time is skipped. Each copy is read back and compared.
    """
    places = [target / path.relative_to(source) for path in files]
    pairs = list(zip(files, places))
    # Our part is one of all files, not of the missing ones: these change while others copy at the same time.
    mine = pairs[index::instances]
    own = {place for _, place in mine}
    _remove_leftovers(own)
    _check_space(pairs, target, others=set(places) - own)
    missing = [pair for pair in mine if not _is_copied(*pair)]
    total, done = sum(_status(path).st_size for path, _ in missing), 0
    for path, place in missing:
        done += _copy(path, place)
        progress(done, total)
    return places


def _is_copied(path: Path, place: Path) -> bool:
    try:
        copy = place.stat()
    except OSError:
        return False
    original = _status(path)
    return (original.st_size, original.st_mtime_ns) == (copy.st_size, copy.st_mtime_ns)


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be staged: {error.strerror}") from error


def _begun(places: Collection[Path]) -> Iterator[Tuple[Path, Path]]:
    """The unfinished copies to these places, each with its place."""
    for directory in {place.parent for place in places}:
        for path in directory.glob(".*"):
            name, _, number = path.name[1:].rpartition(".")
            if number.isdigit() and directory / name in places:
                yield path, directory / name


def _remove_leftovers(places: Collection[Path]) -> None:
    """Remove unfinished copies of dead processes; a living process holds a lock on its copy."""
    for path, _ in _begun(places):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _check_space(pairs: Sequence[Tuple[Path, Path]], target: Path, *, others: Collection[Path]) -> None:
    for _ in range(2):  # the free space can look too small while another instance removes a leftover
        needed, free = _demand(pairs, target, others)
        if needed <= free:
            return
    raise DataError(
        f"staging needs {needed >> 20} MiB in {target}, which has {max(0, free) >> 20} MiB to spare",
        hint="name a larger disk with --stage-dir, or read the data where it is",
    )


def _demand(pairs: Sequence[Tuple[Path, Path]], target: Path, others: Collection[Path]) -> Tuple[int, int]:
    """The bytes that the missing copies need, and the bytes that are free.

    Copies in progress already occupy their space, or free it when they are removed. In this order, a copy that grows
    or ends in the meantime is not counted twice.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        disk = shutil.disk_usage(target)
    except OSError as error:
        raise NotReadyError(
            f"nothing can be staged to {target}: {error.strerror}",
            hint="name another disk with --stage-dir, or read the data where it is",
        ) from error
    begun: Counter[Path] = collections.Counter()
    for path, place in _begun(others):
        with contextlib.suppress(OSError):  # that copy has just ended
            begun[place] += path.stat().st_size
    needed = sum(_status(path).st_size - begun[place] for path, place in pairs if not _is_copied(path, place))
    return needed, disk.free - int(_SPARE * disk.total)


def _copy(path: Path, place: Path) -> int:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # The copy is locked until it has its name, so that nobody takes it for a leftover.
        with path.open("rb") as source, temporary_beside(place).open("wb") as target, made_whole(place) as temporary:
            with contextlib.suppress(OSError):  # without locks, leftovers stay
                fcntl.flock(target, fcntl.LOCK_EX)
            size = crc = 0
            for block in iter(lambda: source.read(_BLOCK), b""):
                target.write(block)
                size, crc = size + len(block), crc32c.crc32c(block, crc)
            target.flush()
            os.fsync(target.fileno())
            if _checksum(temporary) != crc:
                raise DataError(f"the copy of {path} in {place.parent} differs from it", hint="check that disk")
            status = path.stat()
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
        return size
    except OSError as error:
        raise DataError(f"{path} cannot be staged to {place.parent}: {error.strerror}") from error


def _checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            crc = crc32c.crc32c(block, crc)
    return crc
