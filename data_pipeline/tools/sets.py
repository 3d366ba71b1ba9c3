"""Which of the published sets a directory holds, told by its files, and the record files of its splits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Set, Tuple

from ipulaunch.configs.errors import DataError

_SHARD = re.compile(r"(train|validation)-(\d{5})-of-(\d{5})")


class RecordSet(NamedTuple):
    """A set of TFRecord files."""

    kind: str  # "cosmoflow" or "imagenet"
    splits: Dict[str, Tuple[Path, ...]]
    missing: Tuple[Path, ...]  # files that the names of the others promise

    @property
    def files(self) -> List[Tuple[str, Path]]:
        """All files, each with its split."""
        return [(split, path) for split, paths in self.splits.items() for path in paths]


def holds_records(directory: Path) -> bool:
    """Whether there are record files in a directory."""
    return any(_SHARD.fullmatch(path.name) for path in directory.glob("*-of-*")) or any(_volumes(directory).values())


def find_set(directory: Path) -> RecordSet:
    """The set in a directory; a directory with none is refused."""
    if not directory.is_dir():
        raise DataError(f"{directory} is not a directory")
    shards = [match for match in (_SHARD.fullmatch(path.name) for path in sorted(directory.iterdir())) if match]
    if shards:
        return _imagenet(directory, shards)
    splits = {split: paths for split, paths in _volumes(directory).items() if paths}
    if not splits:
        raise DataError(
            f"there are no record files in {directory}",
            hint="CosmoFlow has train/*.tfrecord and validation/*.tfrecord, ImageNet train-00000-of-01024 and so on,"
            " CIFAR data_batch_1 or data_batch_1.bin, MNIST train-images-idx3-ubyte",
        )
    return RecordSet("cosmoflow", splits, ())


def _volumes(directory: Path) -> Dict[str, Tuple[Path, ...]]:
    return {split: tuple(sorted((directory / split).glob("*.tfrecord*"))) for split in ("train", "validation")}


def _imagenet(directory: Path, shards: List[re.Match[str]]) -> RecordSet:
    splits: Dict[str, List[Path]] = {}
    promised: Set[Path] = set()
    for match in shards:
        splits.setdefault(match[1], []).append(directory / match[0])
        promised.update(directory / f"{match[1]}-{n:05}-of-{match[3]}" for n in range(int(match[3])))
    found = {directory / match[0] for match in shards}
    missing = tuple(sorted(promised - found))
    return RecordSet("imagenet", {split: tuple(paths) for split, paths in splits.items()}, missing)
