from __future__ import annotations

import numpy as np

from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.data_pipeline.sources.synthetic import SyntheticCosmoflow

DATA = CosmoflowData(n_train=10, n_valid=4, side=8)


def test_a_sample_is_the_same_in_any_company() -> None:
    source = SyntheticCosmoflow(DATA, "train", seed=1)
    together, targets = source.load(np.array([3, 7]))
    alone, target = source.load(np.array([7]))
    assert np.array_equal(together[1], alone[0])
    assert np.array_equal(targets[1], target[0])


def test_samples_differ_by_number_split_and_seed() -> None:
    volume = SyntheticCosmoflow(DATA, "train", seed=1).load(np.array([3]))[0]
    for source, number in [
        (SyntheticCosmoflow(DATA, "train", seed=1), 4),
        (SyntheticCosmoflow(DATA, "validation", seed=1), 3),
        (SyntheticCosmoflow(DATA, "train", seed=2), 3),
    ]:
        assert not np.array_equal(volume, source.load(np.array([number]))[0])


def test_samples_have_the_published_form() -> None:
    source = SyntheticCosmoflow(DATA, "validation", seed=0)
    volumes, targets = source.load(np.arange(source.samples))
    assert volumes.dtype == np.int16 and volumes.shape == (4, 8, 8, 8, 4) and volumes.min() >= 0
    assert targets.dtype == np.float32 and targets.shape == (4, 4) and np.abs(targets).max() <= 1


def test_the_mean_of_a_channel_follows_its_target() -> None:
    volumes, targets = SyntheticCosmoflow(DATA, "train", seed=0).load(np.arange(10))
    means = volumes.mean(axis=(1, 2, 3))
    assert np.corrcoef(np.log(means).ravel(), targets.ravel())[0, 1] > 0.95
