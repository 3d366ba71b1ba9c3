"""Puts the files that a host reads on a disk of its own before training; the instances of the host share the work.

Every epoch deals the records anew, so each host needs all of them during a training, unless each has its own share.
Packed files arrive unpacked: the disk is near, and every epoch reads them again.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import gzip
import os
import shutil
import zlib
from pathlib import Path
from typing import Callable, Collection, Counter, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import crc32c

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.configs.runs.directory import made_whole, temporary_beside
from ipulaunch.data_pipeline.records.gzip_files import is_gzip, promised_size, unpacked_pieces
from ipulaunch.data_pipeline.records.tfrecord import Buffer

_BLOCK = 1 << 22
_SPARE = 0.02  # of the disk, left free for everybody else

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)


Blocks = Callable[[], Iterable[Buffer]]


class Copy(NamedTuple):
    """A file to be made on the disk of a host."""

    path: Path  # it is made from this one, and gets its time
    place: Path
    size: int
    is_exact: bool  # whether it will have this size; the end of a packed file may name too small a one
    blocks: Blocks  # what is in it; a DataError for what is damaged
    otherwise: Optional[Blocks] = None  # what is in it instead, if that is damaged


def whole_files(files: Sequence[Path], source: Path, target: Path, *, tolerant: bool) -> List[Copy]:
    """Copies of whole files, unpacked; if `tolerant`, one that cannot be unpacked stays as it is."""
    return [_whole_file(path, target / path.relative_to(source), tolerant) for path in files]


def _whole_file(path: Path, place: Path, tolerant: bool) -> Copy:
    plain, unpacked = functools.partial(_plain_blocks, path), functools.partial(_unpacked_blocks, path)
    size = _status(path).st_size
    if not path.is_file() or not is_gzip(path):
        return Copy(path, place, size, True, plain)
    return Copy(path, place, promised_size(path), False, unpacked, plain if tolerant else None)


def _plain_blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        yield from iter(lambda: source.read(_BLOCK), b"")


def _unpacked_blocks(path: Path) -> Iterator[bytes]:
    try:
        yield from unpacked_pieces(path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is packed with gzip and cannot be unpacked: {error}") from error


def stage(copies: Sequence[Copy], target: Path, *, index: int, instances: int, progress: Progress) -> None:
    """Make our part of the copies, every instances-th of them.

    A file that is there with the right size and time is kept. What is written is read back and compared.
    """
    # Our part is one of all files, not of the missing ones: these change while others copy at the same time.
    mine = copies[index::instances]
    own = {copy.place for copy in mine}
    _remove_leftovers(own)
    _check_space(copies, target, others={copy.place for copy in copies} - own)
    missing = [copy for copy in mine if not _is_made(copy)]
    total, done = sum(copy.size for copy in missing), 0
    if missing:
        progress(0, total)
    for copy in missing:
        try:
            _make(copy)
        except DataError:
            if copy.otherwise is None:
                raise
            _make(copy._replace(blocks=copy.otherwise))
        done += copy.size
        progress(done, total)


def _is_made(copy: Copy) -> bool:
    try:
        made = copy.place.stat()
    except OSError:
        return False
    is_current = made.st_mtime_ns == _status(copy.path).st_mtime_ns
    return is_current and (made.st_size == copy.size or not copy.is_exact)


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


def _check_space(copies: Sequence[Copy], target: Path, *, others: Collection[Path]) -> None:
    for _ in range(2):  # the free space can look too small while another instance removes a leftover
        needed, free = _demand(copies, target, others)
        if needed <= free:
            return
    raise DataError(
        f"staging needs {needed >> 20} MiB in {target}, which has {max(0, free) >> 20} MiB to spare",
        hint="name a larger disk with --stage-dir, or read the data where it is; with --stage-shard each host copies"
        " only what it reads",
    )


def _demand(copies: Sequence[Copy], target: Path, others: Collection[Path]) -> Tuple[int, int]:
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
    needed = sum(copy.size - begun[copy.place] for copy in copies if not _is_made(copy))
    return needed, disk.free - int(_SPARE * disk.total)


def _make(copy: Copy) -> None:
    path, place = copy.path, copy.place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # The copy is locked until it has its name, so that nobody takes it for a leftover.
        with temporary_beside(place).open("wb") as target, made_whole(place) as temporary:
            with contextlib.suppress(OSError):  # without locks, leftovers stay
                fcntl.flock(target, fcntl.LOCK_EX)
            status, crc = path.stat(), 0  # before it is read: a write in the meantime makes it a changed file
            for block in copy.blocks():
                target.write(block)
                crc = crc32c.crc32c(block, crc)
            target.flush()
            os.fsync(target.fileno())
            if _checksum(temporary) != crc:
                raise DataError(f"the copy of {path} in {place.parent} differs from it", hint="check that disk")
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
    except OSError as error:
        raise DataError(f"{path} cannot be staged to {place.parent}: {error.strerror}") from error


def _checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            crc = crc32c.crc32c(block, crc)
    return crc
