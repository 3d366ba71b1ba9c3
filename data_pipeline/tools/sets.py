"""Which published set a directory holds, and whether CIFAR and MNIST are as published; verify.py reads records."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.parallel import Progress, Report
from ipulaunch.data_pipeline.records.files import SPLITS, shards, volumes
from ipulaunch.data_pipeline.sources import cifar_files, mnist_files
from ipulaunch.data_pipeline.sources.image_files import Part

_VERSIONS: Dict[str, Callable[[Path, str], List[List[Part]]]] = {
    "cifar10": functools.partial(cifar_files.versions, classes=10),
    "cifar100": functools.partial(cifar_files.versions, classes=100),
    "mnist": mnist_files.versions,
}
_PUBLISHED = {
    "cifar10": {"train": 50000, "validation": 10000},
    "cifar100": {"train": 50000, "validation": 10000},
    "mnist": {"train": 60000, "validation": 10000},
}
_FORMS = {"cifar10": "32 x 32 x 3", "cifar100": "32 x 32 x 3", "mnist": "28 x 28 x 1"}


class ArraySet(NamedTuple):
    """A set of small images."""

    kind: str  # "cifar10", "cifar100" or "mnist"
    splits: Dict[str, List[Part]]  # including missing files


def find_arrays(directory: Path) -> Optional[ArraySet]:
    """The set in a directory, if there is one; for each split, the most complete version."""
    for kind, versions in _VERSIONS.items():
        splits = {}
        for split in SPLITS:
            best = max(versions(directory, split), key=_share)
            if _share(best):
                splits[split] = best
        if splits:
            return ArraySet(kind, splits)
    return None


def verify_arrays(found: ArraySet, report: Report) -> Dict[str, Any]:
    """Read every file: its size, its shape, every label; the result counts."""
    progress = Progress(report, "files", sum(len(parts) for parts in found.splits.values()))
    defects = size = 0
    records = dict.fromkeys(found.splits, 0)
    for split, parts in found.splits.items():
        for part in parts:
            missing = [file for file in part.files if not file.is_file()]
            problems = [(file, "the file is missing") for file in missing]
            size += sum(file.stat().st_size for file in part.files if file not in missing)
            if not missing:
                try:
                    records[split] += len(part.read()[0])
                except DataError as error:
                    problems = [_named(error.message, part)]
            for file, message in problems:
                defects += 1
                report({"event": "defect", "file": str(file), "record": None, "offset": None, "message": message})
            progress.add()
    return {
        "kind": found.kind,
        "form": _FORMS[found.kind],
        "files": {split: sum(len(part.files) for part in parts) for split, parts in found.splits.items()},
        "records": records,
        "bytes": size,
        "defects": defects,
        "notes": [
            {
                "message": f"{split} does not have the {_PUBLISHED[found.kind][split]} images it was published with",
                "records": count,
                "places": [],
            }
            for split, count in records.items()
            if count != _PUBLISHED[found.kind][split]
        ],
    }


def _named(message: str, part: Part) -> Tuple[Path, str]:
    """The file that a message is about, and the rest of the message."""
    for file in part.files:
        if message.startswith(str(file)):
            return file, message[len(str(file)) :].lstrip(": ")
    return part.files[0], message


def _share(parts: List[Part]) -> float:
    files = [file.is_file() for part in parts for file in part.files]
    return sum(files) / len(files)


class RecordSet(NamedTuple):
    """A set of TFRecord files."""

    kind: str  # "cosmoflow" or "imagenet"
    splits: Dict[str, Tuple[Path, ...]]
    missing: Tuple[Path, ...] = ()  # files that the names of the others imply
    strangers: Tuple[Path, ...] = ()  # files of another set than the others

    @property
    def files(self) -> List[Tuple[str, Path]]:
        """All files, each with its split."""
        return [(split, path) for split, paths in self.splits.items() for path in paths]


def holds_records(directory: Path) -> bool:
    """Whether there are record files in a directory; an error if it is not a directory."""
    if not directory.is_dir():
        raise DataError(f"{directory} is not a directory")
    return any(shards(directory, split).paths or volumes(directory, split) for split in SPLITS)


def find_set(directory: Path) -> RecordSet:
    """The set in a directory; an error if there is none."""
    images = {split: shards(directory, split) for split in SPLITS}
    splits = {split: found.paths for split, found in images.items() if found.paths}
    if splits:
        missing = tuple(path for found in images.values() for path in found.missing)
        strangers = tuple(path for found in images.values() for path in found.strangers)
        return RecordSet("imagenet", splits, missing, strangers)
    splits = {split: volumes(directory, split) for split in SPLITS if volumes(directory, split)}
    if not splits:
        raise DataError(
            f"there are no record files in {directory}",
            hint="CosmoFlow has train/*.tfrecord and validation/*.tfrecord, ImageNet train-00000-of-01024 and so on,"
            " CIFAR data_batch_1 or data_batch_1.bin, MNIST train-images-idx3-ubyte",
        )
    return RecordSet("cosmoflow", splits)
