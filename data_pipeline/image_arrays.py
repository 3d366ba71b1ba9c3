"""Small images that fit in memory, whole: read once, cut into micro-batches by NumPy."""

from __future__ import annotations

import functools
import zipfile
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.augmentation import epoch_draws
from ipulaunch.data_pipeline.record_reader import aligned
from ipulaunch.data_pipeline.source import ArraySource, untuned

PAD = 4  # pixels of black around an image that a random crop may show

Images = Tuple[np.ndarray, np.ndarray]  # uint8 [samples, height, width, channels], int32 [samples]


class Part(NamedTuple):
    """A file of images, or one of images and one of their labels, and how to read them."""

    files: Tuple[Path, ...]
    read: Callable[[], Images]


def first_whole(versions: Sequence[Sequence[Part]]) -> Optional[Images]:
    """The images of the first version of a split that is there with all its files."""
    for parts in versions:
        if all(file.is_file() for part in parts for file in part.files):
            images, labels = zip(*(part.read() for part in parts))
            return np.concatenate(images), np.concatenate(labels)
    return None


class ImageArrays(ArraySource):
    """Images and labels in memory; with `augment`, each is shifted by up to 4 pixels and flipped at random."""

    def __init__(self, images: Images, *, seed: int = 0, augment: bool = False) -> None:
        super().__init__()
        self.images, self.labels = images
        self.samples = len(self.images)
        self.inputs, self.targets = (np.uint8, self.images.shape[1:]), (np.int32, ())
        self.augment = augment
        # By epoch; neighbouring epochs overlap in the stream's prefetch.
        self.draws = functools.lru_cache(2)(lambda epoch: epoch_draws(self.samples, 3, seed, epoch))

    def load(self, ids: np.ndarray) -> Images:
        """The images and labels of these samples, as they are."""
        images = aligned((len(ids), *self.images.shape[1:]), np.uint8)
        labels = aligned((len(ids),), np.int32)
        np.take(self.images, ids, axis=0, out=images)
        np.take(self.labels, ids, out=labels)
        return images, labels

    def load_augmented(self, epoch: np.ndarray, ids: np.ndarray) -> Images:
        """The same, shifted and flipped as drawn for this epoch."""
        images, labels = self.load(ids)
        draws = self.draws(int(epoch))[ids]
        shifts = (draws[:, :2] * (2 * PAD + 1)).astype(np.int64)
        rows = shifts[:, :1] + np.arange(images.shape[1])
        columns = shifts[:, 1:] + np.arange(images.shape[2])
        flipped = draws[:, 2] < 0.5
        columns[flipped] = columns[flipped, ::-1]
        padded = np.pad(images, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)))
        images[...] = padded[np.arange(len(ids))[:, None, None], rows[:, :, None], columns[:, None, :]]
        return images, labels

    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        if not self.augment:
            return super().dataset(numbers, micro_size, threads)
        load = self.guarded(self.load_augmented)

        def fetch(epoch: Any, ids: Any) -> Any:
            images, labels = tf.numpy_function(load, [epoch, ids], [tf.uint8, tf.int32])
            return tf.ensure_shape(images, (micro_size, *self.inputs[1])), tf.ensure_shape(labels, (micro_size,))

        return untuned(numbers.map(fetch, threads, deterministic=True))


def checked(images: np.ndarray, labels: np.ndarray, shape: Tuple[int, ...], classes: int, where: Path) -> Images:
    """Images and labels as a source holds them; what does not fit together is refused."""
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
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is no archive of arrays", hint="it was cut off; fetch it again")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return arrays[f"x_{part}"], arrays[f"y_{part}"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} has no x_{part} and y_{part} that can be read: {error}") from error
