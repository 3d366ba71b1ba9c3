"""Copying a data set to a disk of this host before training, shared out among the instances on it.

Every epoch deals the records anew, so over a training each host meets all of them: its share is the whole set, once.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Callable, List, Sequence

import crc32c

from ipulaunch.configs.errors import DataError

_BLOCK = 1 << 22
_SPARE = 0.02  # of the disk, left free for everybody else

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)


def stage(
    files: Sequence[Path], source: Path, target: Path, *, index: int, instances: int, progress: Progress
) -> List[Path]:
    """Copy our part of the files, every instances-th of them; the paths of all files in their new place.

    A file that is there with the same size and time was copied before. A copy is read back and compared.
    """
    places = [target / path.relative_to(source) for path in files]
    pairs = list(zip(files, places))
    _check_space([pair for pair in pairs if not _is_copied(*pair)], target)
    # Our part is taken from all files: others copy at the same time, and what is missing changes under our hands.
    mine = [pair for pair in pairs[index::instances] if not _is_copied(*pair)]
    total, done = sum(path.stat().st_size for path, _ in mine), 0
    for path, place in mine:
        place.parent.mkdir(parents=True, exist_ok=True)
        done += _copy(path, place)
        progress(done, total)
    return places


def _is_copied(path: Path, place: Path) -> bool:
    if not place.exists():
        return False
    original, copy = path.stat(), place.stat()
    return (original.st_size, original.st_mtime_ns) == (copy.st_size, copy.st_mtime_ns)


def _check_space(missing: Sequence[tuple[Path, Path]], target: Path) -> None:
    needed = sum(path.stat().st_size for path, _ in missing)
    target.mkdir(parents=True, exist_ok=True)
    disk = shutil.disk_usage(target)
    free = disk.free - int(_SPARE * disk.total)
    if needed > free:
        raise DataError(
            f"staging needs {needed >> 20} MiB in {target}, which has {max(0, free) >> 20} MiB to spare",
            hint="name a larger disk with --stage-dir, or read the data where it is",
        )


def _copy(path: Path, place: Path) -> int:
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with path.open("rb") as source, temporary.open("wb") as target:
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
        temporary.replace(place)
        return size
    except OSError as error:
        raise DataError(f"{path} cannot be staged to {place.parent}: {error.strerror}") from error
    finally:
        if temporary.exists():
            temporary.unlink()


def _checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        for block in iter(lambda: file.read(_BLOCK), b""):
            crc = crc32c.crc32c(block, crc)
    return crc
