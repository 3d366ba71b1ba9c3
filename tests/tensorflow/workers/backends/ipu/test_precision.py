"""Half precision on the IPU backend: batch norm, padded updates and stochastic rounding, as the SDK treats them."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import ipu_backend, plan_of

from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.workers.backends.interface import Feed
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import make_optimizer
from ipulaunch.workers.models.precision import precision
from ipulaunch.workers.models.variables import read_variable

Install = Callable[..., Any]
BATCH = Batch(2, 2, 2)
TYPES = {"32.32": (tf.float32, tf.float32), "16.32": (tf.float32, tf.float32), "16.16": (tf.float16, tf.float16)}


class Pictures(ArraySource):
    """Made-up pixels and labels."""

    samples = 7
    inputs, targets = (np.uint8, (8, 8, 3)), (np.int32, ())

    def load(self, ids: np.ndarray) -> Any:
        pixels = [np.random.default_rng(number).integers(0, 256, (8, 8, 3)) for number in ids]
        return np.array(pixels, np.uint8), ids.astype(np.int32) % 10


@pytest.fixture()
def trained(standin: Install, one_residual_block: Any) -> Callable[..., Any]:
    """A residual block with batch norm after one update of 8 samples."""

    def train(*texts: str, sdk: str = "3.4") -> Any:
        small = ("data.synthetic_data=cpu", "data.side=8", "data.classes=10", "training.deterministic=false")
        overrides = [assignment(text, "--set") for text in (*small, *texts)]
        settings = resolve("cifar10", rehearsal=True, overrides=overrides).settings
        training = settings.training
        standin(sdk, replicas=2)
        backend = ipu_backend(settings, plan_of(BATCH))
        with backend.scope(), precision(training.precision):
            model = build_model(one_residual_block(settings), backend.dropout)
            optimizer = make_optimizer(settings, BATCH, 1)
            prepared = backend.prepare(model, optimizer, measures_of(settings), HostEvents(1, 1, 1, 0, 0, 1))
        stream = training_stream(
            Pictures(), BATCH, backend.replicas, shuffle=Shuffle(0), updates=range(1), by_replica=False, threads=1,
            remainder=training.remainder,
        )  # fmt: skip
        prepared.fit(Feed(stream), epochs=1, steps_per_epoch=2, callbacks=[])
        return prepared

    return train


BITS = [pytest.param("32.32", marks=pytest.mark.night), "16.32", pytest.param("16.16", marks=pytest.mark.night)]


@pytest.mark.parametrize("bits", BITS)
def test_batch_norm_and_padded_updates_train(bits: str, trained: Any) -> None:
    """Of 8 places one is padding: metrics divide by 8, as the loss does. The test below trains in 16.16 by day."""
    prepared = trained(f"training.precision={bits}", "training.remainder=pad")
    (logs,) = zip(*(prepared.model.history.history[name] for name in ("loss", "accuracy")))
    assert logs[1] * 8 == pytest.approx(round(logs[1] * 8))
    assert 0 < logs[0] < 10
    (norm,) = [layer for layer in prepared.model.layers if layer.name == "conv1_bn"]
    kept, statistics = TYPES[bits]
    assert (norm.gamma.dtype, norm.moving_mean.dtype) == (kept, statistics)
    assert np.abs(read_variable(norm.moving_mean)).max() > 0


@pytest.mark.parametrize("rounding", ["on", pytest.param("ri", marks=pytest.mark.night)])
def test_replicas_that_round_stochastically_keep_their_weights_alike(rounding: str, trained: Any) -> None:
    """By night with the rounding that is off where the generator is not stable."""
    prepared = trained("training.precision=16.16", f"device.stochastic_rounding={rounding}", "training.remainder=pad")
    assert prepared.device.config.experimental.enable_prng_stability
