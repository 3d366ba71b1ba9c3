"""What a launch needs of the machine that it starts on: its data, with volumes of the right size, and its programs."""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, NamedTuple, Optional, Sequence, Tuple, cast

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.settings.data import Data
from ipulaunch.configs.settings.workload import WorkloadSettings

if TYPE_CHECKING:
    from ipulaunch.configs.settings.cosmoflow import CosmoflowModel
    from ipulaunch.configs.settings.workload import WorkloadSettings

_LENGTH = 8  # bytes at the start of a record, the lowest first
_MOST_BESIDE = 1024  # bytes of a record that are not the volume: its targets, and the names of both
_VALUE = 2  # bytes of a count
_GZIP = b"\x1f\x8b"


def require_data(workload: str, settings: WorkloadSettings) -> None:
    """Refuse directories that are not there, and images without a directory."""
    data, training = settings.data, settings.training
    published = f": {PUBLISHED_SETS[workload].hint}"
    named = [(data.directory, f"{data.option}{published}")]
    if not training.training:  # a training writes there first
        named.append((training.checkpoint_input_dir, "--checkpoint-input-dir"))
        named.append((settings.estimator_run.model_dir, "--model-dir"))
    for path, option in named:
        if path and not Path(path).is_dir():
            raise DataError(f"there is no directory {path}", hint=f"check {option}")
    require_images(workload, data)
    _require_volumes(workload, settings)


def _require_volumes(workload: str, settings: WorkloadSettings) -> None:
    """Refuse volumes of another size. The instances report other defects."""
    volumes = volumes_of(workload, settings)
    if volumes is None or settings.data.bad_records != "fail":
        return
    for look in looks(volumes):
        if look.is_of_another_side:
            raise DataError(f"{look.file}: {look.wrong}", hint=look.fix)


def require_images(workload: str, data: Data) -> None:
    """Refuse a training on images that does not say where they are, wherever it is to run."""
    if data.is_unnamed:
        raise DataError(
            f"{workload} needs its images", hint=f"give {data.option}, or --synthetic-data cpu for synthetic ones"
        )


def require_python(python: str) -> None:
    """Refuse a Python that is not on this machine."""
    _require_executable(python, "check --python")


def require_program(program: str, env: Sequence[str]) -> None:
    """Refuse a program that is not on this machine, in the PATH that its instances get."""
    paths = [value for name, equals, value in (each.partition("=") for each in env) if name == "PATH" and equals]
    _require_executable(program, "check its name, its path and whether it is executable", *paths[-1:])


def _require_executable(name: str, hint: str, path: Optional[str] = None) -> None:
    import shutil  # here, because a dry run starts nothing

    if shutil.which(name, path=path) is None:
        raise NotReadyError(f"there is no program {name} here", hint=hint)


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
