"""CIFAR-10 and CIFAR-100: the binary and the Python batches as published, or an archive as Keras keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Tuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.data_pipeline.sources.image_files import Images, Part, checked, first_whole, read_npz
from ipulaunch.data_pipeline.sources.pickled import NotAPlainPickle, read_pickle

_SHAPE = (32, 32, 3)
_PIXELS = 3 * 32 * 32  # of an image: all of red, all of green, all of blue
_Arrays = Tuple[np.ndarray, np.ndarray]


class _Published(NamedTuple):
    """How one of the two sets is published."""

    name: str
    classes: int
    files: Dict[str, Tuple[str, ...]]  # without the ending .bin of the binary version
    folders: Tuple[str, str]  # of the binary and of the Python version, as they are unpacked
    label_bytes: int  # before the pixels in the binary version; the last is the label
    label_key: str  # in the Python version


_Read = Callable[[Path, _Published], _Arrays]

_SETS = {
    10: _Published(
        "CIFAR-10",
        10,
        {"train": tuple(f"data_batch_{n}" for n in range(1, 6)), "validation": ("test_batch",)},
        ("cifar-10-batches-bin", "cifar-10-batches-py"),
        1,
        "labels",
    ),
    100: _Published(
        "CIFAR-100",
        100,
        {"train": ("train",), "validation": ("test",)},
        ("cifar-100-binary", "cifar-100-python"),
        2,
        "fine_labels",
    ),
}


def versions(data_dir: Path, split: str, classes: int) -> List[List[Part]]:
    """The forms that a split can have there, each as a list of its files."""
    published = _SETS[classes]
    names = published.files[split]
    forms: List[Tuple[str, Tuple[str, ...], _Read]] = [
        (published.folders[0], tuple(f"{name}.bin" for name in names), _read_binary),
        (published.folders[1], names, _read_pickled),
    ]
    archive = data_dir / f"cifar{classes}.npz"
    return [
        *(
            [_part(directory / name, published, read) for name in files]
            for folder, files, read in forms
            for directory in (data_dir, data_dir / folder)
        ),
        [Part((archive,), lambda: checked(*read_npz(archive, split), _SHAPE, classes, archive))],
    ]


def read_images(data_dir: Path, split: str, classes: int) -> Images:
    """The images of a split, from the first version that has all its files."""
    images = first_whole(versions(data_dir, split, classes))
    if images is not None:
        return images
    missing = f"there is no {_SETS[classes].name} in {data_dir}, or not all of its {split} files"
    raise DataError(missing, hint=PUBLISHED_SETS[f"cifar{classes}"].hint)


def _part(path: Path, published: _Published, read: _Read) -> Part:
    def images() -> Images:
        rows, labels = read(path, published)
        if rows.ndim != 2 or rows.shape[1] != _PIXELS:
            raise DataError(f"{path}: rows of {rows.shape[1:]} bytes, expected {_PIXELS}")
        pixels = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return checked(pixels, labels, _SHAPE, published.classes, path)

    return Part((path,), images)


def _read_binary(path: Path, published: _Published) -> _Arrays:
    data = np.frombuffer(_bytes(path), np.uint8)
    row = published.label_bytes + _PIXELS
    if data.size % row:
        raise DataError(
            f"{path} has {data.size} bytes, expected a multiple of {row}", hint="it was cut off; unpack it again"
        )
    rows = data.reshape(-1, row)
    return rows[:, published.label_bytes :], rows[:, published.label_bytes - 1]


def _read_pickled(path: Path, published: _Published) -> _Arrays:
    try:
        values = read_pickle(_bytes(path))
    except NotAPlainPickle as error:
        raise DataError(f"{path} is not a batch of {published.name}: {error}", hint="unpack it again") from error
    pixels, labels = values.get("data"), values.get(published.label_key)
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        found = ", ".join(values) or "nothing"
        raise DataError(f"{path} holds {found}, expected data and {published.label_key}")
    if not all(isinstance(label, int) and abs(label) < 1 << 31 for label in labels):
        raise DataError(f"{path}: {published.label_key} are not whole numbers")
    return pixels, np.array(labels, np.int64)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
