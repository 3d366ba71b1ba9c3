"""Synthetic samples: on the host each sample, on the device each micro-batch, is drawn from (seed, split, number)."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.configs.settings.images import ImageData
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.data_pipeline.records.files import SPLITS
from ipulaunch.data_pipeline.sources.normalise import conversion
from ipulaunch.data_pipeline.sources.source import ArraySource, Source

Convert = Callable[[Any], Any]

_PATTERN_SIDE = 4  # patches along one edge of a class's pattern


def _draw(key: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([key, number], np.uint64)))


class SyntheticCosmoflow(ArraySource):
    """Particle counts in a volume; the mean of each channel follows one target, so there is something to learn."""

    def __init__(self, data: CosmoflowData, split: str, seed: int) -> None:
        super().__init__()
        self.samples = data.n_train if split == "train" else data.n_valid
        self.inputs = (np.int16, (data.side, data.side, data.side, data.channels))
        self.targets = (np.float32, (data.targets,))
        self.key = 2 * seed + SPLITS.index(split)

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The volumes as int16, as the published records hold them, and their targets in [-1, 1]."""
        (_, shape), (_, (count,)) = self.inputs, self.targets
        volumes = np.empty((len(ids), *shape), np.int16)
        targets = np.empty((len(ids), count), np.float32)
        for row, number in enumerate(ids):
            draw = _draw(self.key, number)
            targets[row] = draw.random(count, np.float32) * 2 - 1
            counts = draw.standard_exponential(shape, np.float32)
            channel_targets = np.resize(targets[row], shape[-1])
            volumes[row] = np.minimum(counts * (4 * np.exp(channel_targets)), 32767)
        return volumes, targets


class SyntheticImages(ArraySource):
    """Noisy pictures of a coarse pattern per class, so there is something to learn."""

    def __init__(self, data: ImageData, split: str, seed: int) -> None:
        super().__init__()
        self.samples = data.n_train if split == "train" else data.n_valid
        self.inputs = (np.uint8, (data.side, data.side, data.channels))
        self.targets = (np.int32, ())
        self.classes, self.seed, self.key = data.classes, seed, 2 * seed + SPLITS.index(split)
        self.pattern = functools.lru_cache(None)(self._pattern)

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        _, shape = self.inputs
        images, labels = np.empty((len(ids), *shape), np.uint8), np.empty(len(ids), np.int32)
        for row, number in enumerate(ids):
            draw = _draw(self.key, number)
            labels[row] = draw.integers(self.classes)
            noise = draw.integers(0, 128, shape, np.uint8)
            images[row] = noise + self.pattern(int(labels[row]))
        return images, labels

    def _pattern(self, label: int) -> np.ndarray:
        """Patches of up to half the brightness, the same in both splits."""
        side, _, channels = self.inputs[1]
        patches = _draw(1 << 63 | self.seed, label).integers(0, 128, (_PATTERN_SIDE, _PATTERN_SIDE, channels), np.uint8)
        places = np.arange(side) * _PATTERN_SIDE // side
        return patches[places][:, places]


class MadeOnDevice(Source):
    """Random samples that exist only inside the training step: the stream carries their numbers."""

    def __init__(
        self, samples: int, inputs: Any, targets: Any, *, key: int, classes: int = 0, convert: Optional[Convert] = None
    ) -> None:
        super().__init__()
        self.samples, self.inputs, self.targets = samples, inputs, targets
        self.key, self.classes, self.convert = key, classes, convert

    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        def fetch(epoch: Any, ids: Any) -> Any:
            ids = tf.ensure_shape(ids, (micro_size,))
            return ids, ids

        return numbers.map(fetch)

    def make(self, ids: Any) -> Tuple[Any, Any]:
        """The inputs, as the network takes them, and targets of a micro-batch."""
        (kind, shape), (target_kind, target_shape) = self.inputs, self.targets
        seed = tf.stack([tf.constant(self.key, tf.int64), ids[0]])
        inputs = tf.random.stateless_uniform((ids.shape[0], *shape), seed, 0, 128, tf.int32)
        if self.classes:
            targets = tf.cast(ids % self.classes, target_kind)
        else:
            targets = tf.random.stateless_uniform((ids.shape[0], *target_shape), seed, -1, 1)
        inputs = tf.cast(inputs, kind)
        return inputs if self.convert is None else self.convert(inputs), targets


def made_on_device(settings: WorkloadSettings, split: str) -> MadeOnDevice:
    """Samples of the shape that a workload takes."""
    data, seed = settings.data, settings.training.seed
    samples = data.n_train if split == "train" else data.n_valid
    more: Dict[str, Any] = {"key": 2 * seed + SPLITS.index(split), "convert": conversion(data)}
    if isinstance(data, CosmoflowData):
        return MadeOnDevice(samples, (np.int16, settings.shape), (np.float32, (data.targets,)), **more)
    assert isinstance(data, ImageData)
    return MadeOnDevice(samples, (np.uint8, settings.shape), (np.int32, ()), classes=data.classes, **more)
