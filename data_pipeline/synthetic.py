"""Made-up samples, each a function of (seed, split, number) alone."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from ipulaunch.configs.cosmoflow import CosmoflowData
from ipulaunch.data_pipeline.source import ArraySource

_SPLITS = {"train": 0, "validation": 1}


class SyntheticCosmoflow(ArraySource):
    """Particle counts in a volume; the mean of each channel follows one target, so there is something to learn."""

    def __init__(self, data: CosmoflowData, split: str, seed: int) -> None:
        super().__init__()
        self.samples = data.n_train if split == "train" else data.n_valid
        self.inputs = (np.int16, (data.side, data.side, data.side, data.channels))
        self.targets = (np.float32, (data.targets,))
        self.key = 2 * seed + _SPLITS[split]

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The volumes as int16, as the published records hold them, and their targets in [-1, 1]."""
        (_, shape), (_, (count,)) = self.inputs, self.targets
        volumes = np.empty((len(ids), *shape), np.int16)
        targets = np.empty((len(ids), count), np.float32)
        for row, number in enumerate(ids):
            draw = np.random.Generator(np.random.Philox(key=np.array([self.key, number], np.uint64)))
            targets[row] = draw.random(count, np.float32) * 2 - 1
            counts = draw.standard_exponential(shape, np.float32)
            channel_targets = np.resize(targets[row], shape[-1])
            volumes[row] = np.minimum(counts * (4 * np.exp(channel_targets)), 32767)
        return volumes, targets
