"""The raw images of ImageNet: folders of classes, or for validation one folder and a file of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError

_SUFFIXES = {".jpeg", ".jpg", ".png"}
_SHUFFLE_KEY = 12345  # any; always the same, so that a build that goes on has the same order


class RawImage(NamedTuple):
    """One file, and the class it shows."""

    path: Path
    label: int  # from 1
    synset: str


def list_images(raw: Path, validation_labels: Optional[Path]) -> Dict[str, List[RawImage]]:
    """All images by split, in an order that is shuffled but always the same."""
    train = raw / "train"
    synsets = _folders(train)
    if not synsets:
        raise DataError(
            f"there are no class folders in {train}", hint="expected train/n01440764/*.JPEG and one folder per class"
        )
    labels = {synset: number for number, synset in enumerate(synsets, 1)}
    found = {"train": _in_folders(train, labels)}
    validation = next((raw / name for name in ("validation", "val") if (raw / name).is_dir()), None)
    if validation is not None:
        found["validation"] = (
            _in_folders(validation, labels)
            if _folders(validation)
            else _flat(validation, validation_labels or raw / "validation_labels.txt", labels)
        )
    return {split: _shuffled(images) for split, images in found.items()}


def _folders(directory: Path) -> List[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []


def _images(directory: Path) -> List[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix.lower() in _SUFFIXES)


def _in_folders(directory: Path, labels: Dict[str, int]) -> List[RawImage]:
    unknown = sorted(set(_folders(directory)) - set(labels))
    if unknown:
        raise DataError(f"{directory / unknown[0]}: train/ has no class of this name")
    return [
        RawImage(path, labels[synset], synset) for synset in _folders(directory) for path in _images(directory / synset)
    ]


def _flat(directory: Path, labels_file: Path, labels: Dict[str, int]) -> List[RawImage]:
    """Images in the order of their names, and a line with the class of each."""
    try:
        lines = labels_file.read_text(encoding="utf-8").split()
    except OSError as error:
        hint = "--validation-labels FILE: a class per line, in the order of the images' names"
        raise DataError(f"{labels_file}: {error.strerror}", hint=hint) from error
    images = _images(directory)
    if len(images) != len(lines):
        raise DataError(f"{labels_file} has {len(lines)} labels, {directory} has {len(images)} images")
    return [RawImage(path, *_class(line, labels, labels_file)) for path, line in zip(images, lines)]


def _class(line: str, labels: Dict[str, int], labels_file: Path) -> Tuple[int, str]:
    """A line names a class by its folder, or by its number from 1."""
    if line in labels:
        return labels[line], line
    names = list(labels)
    if line.isdigit() and 1 <= int(line) <= len(names):
        return int(line), names[int(line) - 1]
    raise DataError(f"{labels_file}: {line!r} is no class: neither a folder of train/ nor a number to {len(names)}")


def _shuffled(images: List[RawImage]) -> List[RawImage]:
    # numpy keeps the raw stream of Philox the same in every version.
    keys = np.random.Philox(key=_SHUFFLE_KEY).random_raw(len(images))
    return [images[number] for number in np.argsort(keys, kind="stable")]
