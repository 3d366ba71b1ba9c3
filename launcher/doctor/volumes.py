"""CosmoFlow's files: whether they hold volumes of the size that the job is for, by the length of a record."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import List, Optional

from ipulaunch.launcher.doctor.case import Case, Volumes
from ipulaunch.launcher.doctor.check import BOTH, MISSING, OK, Check
from ipulaunch.launcher.doctor.places import GROUP
from ipulaunch.launcher.doctor.world import World

_LENGTH = 8  # bytes at the start of a record, the lowest first
_MOST_BESIDE = 1024  # bytes of a record that are not the volume: its targets, and the names of both
_VALUE = 2  # bytes of a count


def check_volumes(case: Case, world: World) -> List[Check]:
    """One record of each split; the instances look at all of them."""
    if case.volumes is None:
        return []
    files = [next(iter(case.volumes.data_dir.glob(pattern)), None) for pattern in case.volumes.patterns]
    return [check for check in (_look(file, case.volumes) for file in files if file is not None) if check is not None]


def _look(file: Path, volumes: Volumes) -> Optional[Check]:
    name, side = f"{file.parent.name} volumes", volumes.side
    try:
        length = _first_length(file)
    except (OSError, EOFError, zlib.error) as error:
        fix = f"ipulaunch data verify {volumes.data_dir} looks at every record"
        return Check(GROUP, name, MISSING, f"{file}: no record can be read: {error}", fix, BOTH)
    if length is None:
        return None
    if 0 <= length - _size(side, volumes) <= _MOST_BESIDE:
        return Check(GROUP, name, OK, f"{side} x {side} x {side}, by the first record of {file.name}")
    found = round((length / _size(1, volumes)) ** (1 / 3))
    if 0 <= length - _size(found, volumes) <= _MOST_BESIDE:
        said, fix = f"{found} x {found} x {found}, and the job is for {side} x {side} x {side}", f"--side {found}"
    else:
        said = f"a record of {length:,} bytes, and a volume of {side} x {side} x {side} takes {_size(side, volumes):,}"
        fix = f"check --data-dir and --side; ipulaunch data verify {volumes.data_dir} looks at every record"
    return Check(GROUP, name, MISSING, f"{file}: {said}", fix, BOTH)


def _first_length(file: Path) -> Optional[int]:
    """The bytes of the first record; None for a file without one."""
    with file.open("rb") as stream:
        start = stream.read(_LENGTH)
    if start[:2] == b"\x1f\x8b":
        with gzip.open(file) as stream:
            start = stream.read(_LENGTH)
    return int.from_bytes(start, "little") if len(start) == _LENGTH else None


def _size(side: int, volumes: Volumes) -> int:
    return side**3 * volumes.channels * _VALUE
