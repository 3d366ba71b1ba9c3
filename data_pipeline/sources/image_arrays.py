"""Sets of small images that fit in memory: read once, cut into micro-batches by NumPy."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ipulaunch.data_pipeline.records.memory import aligned
from ipulaunch.data_pipeline.sources import cifar_files, mnist_files
from ipulaunch.data_pipeline.sources.augmentation import epoch_draws
from ipulaunch.data_pipeline.sources.image_files import Images
from ipulaunch.data_pipeline.sources.source import ArraySource, unconverted, untuned

PAD = 4  # pixels of black around an image that a random crop may show


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

        return untuned(numbers.map(unconverted(fetch), threads, deterministic=True))


class Cifar(ImageArrays):
    """CIFAR: colour images of 32x32 in 10 or 100 classes."""

    def __init__(self, data_dir: Path, split: str, *, classes: int = 10, seed: int = 0, augment: bool = False) -> None:
        super().__init__(cifar_files.read_images(data_dir, split, classes), seed=seed, augment=augment)


class Mnist(ImageArrays):
    """MNIST and Fashion-MNIST: grey images of 28x28 in ten classes."""

    def __init__(self, data_dir: Path, split: str) -> None:
        super().__init__(mnist_files.read_images(data_dir, split))
