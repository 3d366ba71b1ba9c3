"""MNIST and Fashion-MNIST: idx files as published, packed or not, or Keras's archive."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import List, Tuple, Union

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.data_pipeline.records import gzip_files
from ipulaunch.data_pipeline.sources.image_files import Images, Part, checked, first_whole, read_npz

_SHAPE, _CLASSES = (28, 28, 1), 10
_UNSIGNED_BYTES = 8
_NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "validation": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def versions(data_dir: Path, split: str) -> List[List[Part]]:
    """The forms a split can have there."""
    archive = data_dir / "mnist.npz"
    pictures, labels = (_find(data_dir, name) for name in _NAMES[split])

    def read() -> Images:
        return checked(_read_idx(pictures, 3), _read_idx(labels, 1), _SHAPE, _CLASSES, pictures)

    return [
        [Part((pictures, labels), read)],
        [Part((archive,), lambda: checked(*read_npz(archive, split), _SHAPE, _CLASSES, archive))],
    ]


def read_images(data_dir: Path, split: str) -> Images:
    """The images of a split, from the first kind of file that is there."""
    images = first_whole(versions(data_dir, split))
    if images is not None:
        return images
    missing = f"there is no MNIST in {data_dir}, or not all of its {split} files"
    raise DataError(missing, hint=PUBLISHED_SETS["mnist"].hint)


def _find(data_dir: Path, name: str) -> Path:
    """The file of this name; some copies write a dot before `idx`."""
    dotted = name.replace("-idx", ".idx")
    names = (name, f"{name}.gz", dotted, f"{dotted}.gz")
    return next((data_dir / each for each in names if (data_dir / each).is_file()), data_dir / name)


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """An idx file: two zeros, the kind of value, how many dimensions, each of them, the values."""
    data = _unpacked(path)
    expected = bytes([0, 0, _UNSIGNED_BYTES, dimensions])
    if data[:4] != expected or len(data) < 4 + 4 * dimensions:
        raise DataError(f"{path} starts with {data[:4].hex() or 'nothing'}, expected {expected.hex()}: an idx file")
    shape: Tuple[int, ...] = struct.unpack_from(f">{dimensions}I", data, 4)
    start, size = 4 + 4 * dimensions, math.prod(shape)
    if len(data) != start + size:
        hint = "the file was cut off or changed; fetch it again"
        raise DataError(f"{path} has {len(data)} bytes, expected {start + size} for {shape}", hint=hint)
    return np.frombuffer(data, np.uint8, size, start).reshape(shape)


def _unpacked(path: Path) -> Union[bytes, memoryview]:
    try:
        return gzip_files.unpacked(path) if gzip_files.is_gzip(path) else path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
