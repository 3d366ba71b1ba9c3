"""Which of the published sets a directory holds, by its files, and the record files of its splits."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records.files import SPLITS, shards, volumes


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
