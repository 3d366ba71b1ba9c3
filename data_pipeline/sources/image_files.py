"""Files of small images as they are published: which version of a split is there, and whether it is sound.

This module does not need TensorFlow, which takes seconds to load: the tools recognise and check sets with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records.archive import NotAnArchive, read_arrays

_MOST_BYTES = 1 << 30  # of an archive; CIFAR has 150 million

Images = Tuple[np.ndarray, np.ndarray]  # uint8 [samples, height, width, channels], int32 [samples]


class Part(NamedTuple):
    """A file of images, or one of images and one of their labels, and how to read them."""

    files: Tuple[Path, ...]
    read: Callable[[], Images]


def first_whole(versions: Sequence[Sequence[Part]]) -> Optional[Images]:
    """The images of the first version of a split that has all its files; None if there is none."""
    for parts in versions:
        if all(file.is_file() for part in parts for file in part.files):
            images, labels = zip(*(part.read() for part in parts))
            return np.concatenate(images), np.concatenate(labels)
    return None


def checked(images: np.ndarray, labels: np.ndarray, shape: Tuple[int, ...], classes: int, where: Path) -> Images:
    """Images and labels as a source holds them; an error if they do not fit together."""
    if images.dtype != np.uint8 or labels.dtype.kind not in "iu":
        raise DataError(f"{where}: images are {images.dtype} and labels {labels.dtype}, expected uint8 and integers")
    if images.shape[1:] not in (shape, shape[:-1]) or len(images) != labels.size:
        found = f"images {images.shape} and labels {labels.shape}"
        raise DataError(f"{where}: {found}, expected images of {shape} and a label for each")
    if not len(images):
        raise DataError(f"{where} holds no image")
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(f"{where}: labels are {labels.min()} to {labels.max()}, expected 0 to {classes - 1}")
    return np.ascontiguousarray(images.reshape(-1, *shape)), labels.reshape(-1).astype(np.int32)


def read_npz(path: Path, split: str) -> Tuple[np.ndarray, np.ndarray]:
    """The images and labels of a split in an archive as Keras keeps them."""
    part = "train" if split == "train" else "test"
    names = (f"x_{part}", f"y_{part}")
    try:
        with path.open("rb") as file:
            arrays = read_arrays(file, names.__contains__, _MOST_BYTES)
    except (OSError, NotAnArchive) as error:
        raise DataError(
            f"{path} is not an archive of arrays: {error}", hint="it was cut off; fetch it again"
        ) from error
    if len(arrays) != 2:
        raise DataError(f"{path} has no {names[0]} and {names[1]}", hint="expected an archive as Keras keeps it")
    return arrays[names[0]], arrays[names[1]]
