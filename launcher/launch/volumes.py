"""CosmoFlow's files: whether they hold volumes of the size that a job is for, by the length of a record."""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, NamedTuple, Optional, Tuple, cast

if TYPE_CHECKING:
    from ipulaunch.configs.settings.cosmoflow import CosmoflowModel
    from ipulaunch.configs.settings.workload import WorkloadSettings

_LENGTH = 8  # bytes at the start of a record, the lowest first
_MOST_BESIDE = 1024  # bytes of a record that are not the volume: its targets, and the names of both
_VALUE = 2  # bytes of a count
_GZIP = b"\x1f\x8b"


class Volumes(NamedTuple):
    """CosmoFlow's files, and the volumes that they are to hold."""

    directory: Path
    splits: Tuple[str, ...]  # that are read
    side: int
    channels: int
    layers: int  # each of which halves a volume


class Look(NamedTuple):
    """At one record of a split: what is wrong with it, and what to do, or nothing."""

    file: Path
    wrong: str = ""
    fix: str = ""
    is_of_another_side: bool = False


def volumes_of(workload: str, settings: WorkloadSettings) -> Optional[Volumes]:
    """The files that the settings of CosmoFlow name; None where they name none."""
    data = settings.data
    if workload != "cosmoflow" or not data.directory:
        return None
    model = cast("CosmoflowModel", settings.model)
    reads = {"train": settings.training.training, "validation": settings.training.validation}
    splits = tuple(split for split, is_read in reads.items() if is_read)
    return Volumes(data.path.absolute(), splits, data.side, data.channels, model.n_conv_layers)


def looks(volumes: Volumes) -> Iterator[Look]:
    """One record of each split, where it has any; the instances look at all of them."""
    for file in _first_files(volumes):
        look = _look(file, volumes)
        if look is not None:
            yield look


def are_packed(volumes: Volumes) -> bool:
    """Whether a first file is packed with gzip."""
    for file in _first_files(volumes):
        with contextlib.suppress(OSError), file.open("rb") as stream:
            if stream.read(len(_GZIP)) == _GZIP:
                return True
    return False


def _first_files(volumes: Volumes) -> Iterator[Path]:
    """A file of each split that has one."""
    for split in volumes.splits:
        file = next((path for path in volumes.directory.glob(f"{split}/*.tfrecord") if path.is_file()), None)
        if file is not None:
            yield file


def _look(file: Path, volumes: Volumes) -> Optional[Look]:
    verify = f"ipulaunch data verify {volumes.directory} looks at every record"
    side = volumes.side
    try:
        length = _first_length(file)
    except (OSError, EOFError, zlib.error) as error:
        return Look(file, f"no record can be read: {error}", verify)
    if length is None:
        return None
    if _holds(length, side, volumes):
        return Look(file)
    found = round((length / _size(1, volumes)) ** (1 / 3))
    if found and _holds(length, found, volumes):
        from ipulaunch.configs.settings.cosmoflow import side_options  # other workloads do without

        said = f"volumes of {found} x {found} x {found}, and the job is for {side} x {side} x {side}"
        return Look(file, said, f"use {side_options(found, volumes.layers)}", True)
    said = f"a record of {length:,} bytes, and a volume of {side} x {side} x {side} takes {_size(side, volumes):,}"
    return Look(file, said, f"check --data-dir and --side; {verify}")


def _first_length(file: Path) -> Optional[int]:
    """The bytes of the first record; None for a file without one."""
    with file.open("rb") as stream:
        start = stream.read(_LENGTH)
    if start.startswith(_GZIP):
        import gzip  # here, because a dry run without data does not need it

        with gzip.open(file) as stream:
            start = stream.read(_LENGTH)
    return int.from_bytes(start, "little") if len(start) == _LENGTH else None


def _holds(length: int, side: int, volumes: Volumes) -> bool:
    return 0 <= length - _size(side, volumes) <= _MOST_BESIDE


def _size(side: int, volumes: Volumes) -> int:
    return side**3 * volumes.channels * _VALUE
