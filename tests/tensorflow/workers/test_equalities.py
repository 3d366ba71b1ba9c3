"""The same training, divided differently: replicas, accumulation steps and pipeline stages do not show."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import plan_of

from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings
from ipulaunch.configs.settings.images import MODELS, ImageData, ImageModel, ImageSettings
from ipulaunch.configs.settings.optimization import Optimizer
from ipulaunch.configs.settings.sections import Pipeline, Training
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import suggest_splits
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import make_optimizer
from ipulaunch.workers.state.checkpoints import load
from ipulaunch.workers.state.training_state import TrainingState

pytestmark = pytest.mark.usefixtures("smooth")
SAMPLES = 8
SGD = Optimizer("sgd", 0.1, momentum=0.9)


def settings_of(name: str, norm: str = "group_norm") -> Any:
    """A model at toy size; without dropout, whose draws belong to a replica and a step."""
    if name.startswith("cosmoflow"):
        return CosmoflowSettings(
            optimizer=SGD,
            data=CosmoflowData(side=16),
            model=CosmoflowModel(name=name, conv_size=2, n_conv_layers=3, fc1_size=8, fc2_size=4, dropout=0.0),
        )
    grey = name == "mnist_cnn"
    data = ImageData(side=28 if grey else 32, channels=1 if grey else 3, classes=5)
    drops, norms = name.endswith("cnn"), "resnet" in name
    model = ImageModel(
        name=name,
        dropout=0.0 if drops else None,
        norm_layer=norm if norms else "batch_norm",
        norm_groups=4,
    )
    return ImageSettings(optimizer=SGD, data=data, model=model)


def samples_of(settings: Any) -> Tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    if isinstance(settings, CosmoflowSettings):
        volumes = draw.integers(0, 100, (SAMPLES, *settings.shape)).astype(np.int16)
        return volumes, draw.uniform(-1, 1, (SAMPLES, 4)).astype(np.float32)
    pixels = draw.integers(0, 256, (SAMPLES, *settings.shape)).astype(np.uint8)
    return pixels, draw.integers(0, 5, SAMPLES).astype(np.int32)


def by_replica(values: np.ndarray, batch: Batch) -> np.ndarray:
    """The micro-batches of one update in the order in which the CPU backend takes them."""
    shape = (batch.accumulation, batch.replicas, batch.micro_size, *values.shape[1:])
    return values.reshape(shape).swapaxes(0, 1).reshape(-1, *shape[2:])


def prepared(settings: Any, batch: Batch) -> Tuple[Any, Any]:
    """A model and its training, from the same beginning."""
    tf.random.set_seed(0)
    backend = CpuBackend(settings, plan_of(batch), 0, Alone())
    model = build_model(network_of(settings), backend.dropout)
    draw = np.random.default_rng(1)
    model.set_weights([np.asarray(draw.normal(w, 0.05 + 0 * w), w.dtype) for w in initial_weights(model)])
    return model, backend.prepare(model, make_optimizer(settings, batch, 1), measures_of(settings), None)


def update(trained: Any, settings: Any, batch: Batch) -> None:
    inputs, targets = (by_replica(values, batch) for values in samples_of(settings))
    trained._update(zip(tf.constant(inputs), tf.constant(targets)))


def weights_after(settings: Any, batch: Batch) -> List[np.ndarray]:
    """The weights after an update on the same samples, from the same beginning."""
    model, trained = prepared(settings, batch)
    update(trained, settings, batch)
    found: List[np.ndarray] = model.get_weights()
    return found


def initial_weights(model: Any) -> List[np.ndarray]:
    """Zeros, but ones for what multiplies and for variances."""
    return [np.full(w.shape, float("gamma" in w.name or "variance" in w.name)) for w in model.weights]


@pytest.fixture(autouse=True)
def without_graphs() -> Iterator[None]:
    """Step by step, since building the graph of a deep network takes longer than an update of it."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def assert_close(found: List[np.ndarray], expected: List[np.ndarray]) -> None:
    """Up to the order of summation, with room for what a deep network and another processor make of it."""
    for mine, theirs in zip(found, expected):
        scale = max(1e-2, float(np.abs(theirs).max()))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5 * scale)


# One of each kind: in three dimensions, with dropout layers, and residual. The others differ by depth and width alone,
# and take minutes: they are left to the night.
DAILY = ["cosmoflow", "mnist_cnn", "cifar_resnet8"]
SMALLEST = pytest.param(DAILY[0], marks=pytest.mark.core)
OTHERS = [name for name in ("cosmoflow_v1", *MODELS) if name not in DAILY]
EVERY = [SMALLEST, *DAILY[1:], *(pytest.param(name, marks=pytest.mark.night) for name in OTHERS)]
every_network = pytest.mark.parametrize("name", EVERY)
_whole: Dict[str, List[np.ndarray]] = {}


def whole(name: str) -> List[np.ndarray]:
    """The weights of a model that took all samples at once."""
    if name not in _whole:
        _whole[name] = weights_after(settings_of(name), Batch(SAMPLES, 1, 1))
    return _whole[name]


@every_network
def test_replicated_is_unreplicated(name: str) -> None:
    assert_close(weights_after(settings_of(name), Batch(2, 4, 1)), whole(name))


@every_network
def test_accumulated_is_a_large_batch(name: str) -> None:
    assert_close(weights_after(settings_of(name), Batch(4, 1, 2)), whole(name))


@every_network
def test_pipelined_is_unpipelined(name: str) -> None:
    settings = settings_of(name)
    splits = suggest_splits(network_of(settings), 3, 1).splits
    pipelined = dataclasses.replace(settings, pipeline=Pipeline(splits=splits))
    assert_close(weights_after(pipelined, Batch(SAMPLES, 1, 1)), whole(name))


@every_network
def test_resumed_is_uninterrupted(name: str, tmp_path: Path) -> None:
    """To the bit: weights, batch statistics and momenta come back from a checkpoint into a model of its own."""
    settings, batch = settings_of(name, norm="batch_norm"), Batch(4, 2, 1)
    model, trained = prepared(settings, batch)
    state = TrainingState(model, trained.optimizer, trained.more)
    update(trained, settings, batch)
    path = state.save(tmp_path, {"update": 1})
    update(trained, settings, batch)
    other, continued = prepared(settings, batch)
    other.set_weights([np.zeros_like(weight) for weight in other.get_weights()])
    TrainingState(other, continued.optimizer, continued.more).restore(load(path))
    update(continued, settings, batch)
    for mine, theirs in zip(other.get_weights(), model.get_weights()):
        assert np.array_equal(mine, theirs)


def test_pipelined_batch_statistics_are_those_of_the_whole_model() -> None:
    settings = settings_of("cifar_resnet8", norm="batch_norm")
    splits = suggest_splits(network_of(settings), 3, 1).splits
    pipelined = dataclasses.replace(settings, pipeline=Pipeline(splits=splits))
    batch = Batch(2, 2, 2)
    assert_close(weights_after(pipelined, batch), weights_after(settings, batch))


@pytest.mark.parametrize(("replicas", "steps"), [(2, 1), (1, 2)], ids=["two replicas", "two steps"])
def test_micro_batches_have_statistics_of_their_own_and_move_the_averages_by_their_mean(
    replicas: int, steps: int
) -> None:
    settings = settings_of("cifar_resnet8", norm="batch_norm")
    tf.random.set_seed(0)
    halves = []
    for half in (slice(0, 4), slice(4, 8)):
        model = build_model(network_of(settings), lambda rate, name: None)
        model.set_weights(initial_weights(model))
        model(samples_of(settings)[0][half], training=True)
        halves.append([variable.numpy() for variable in model.non_trainable_variables])
    backend = CpuBackend(settings, plan_of(Batch(4, replicas, steps)), 0, Alone())
    model = build_model(network_of(settings), backend.dropout)
    model.set_weights(initial_weights(model))
    trained = backend.prepare(model, make_optimizer(settings, backend.batch, 1), measures_of(settings), None)
    trained._update(zip(*(tf.constant(by_replica(part, backend.batch)) for part in samples_of(settings))))
    found = [variable.numpy() for variable in model.non_trainable_variables]
    assert_close(found, [(first + second) / 2 for first, second in zip(*halves)])


@pytest.mark.parametrize("scaling", [128.0, 0.5])
def test_loss_scaling_does_not_show_in_32_bits(scaling: float) -> None:
    settings = settings_of("mnist_cnn")
    scaled = dataclasses.replace(settings, optimizer=dataclasses.replace(SGD, loss_scaling=scaling))
    assert_close(weights_after(scaled, Batch(4, 2, 1)), whole("mnist_cnn"))


@pytest.mark.parametrize(("precision", "kind"), [("16.16", np.float16), ("16.32", np.float32)])
def test_16_bits_train_near_to_32(precision: str, kind: Any) -> None:
    settings = dataclasses.replace(settings_of("mnist_cnn"), training=Training(precision=precision))
    policy = {"16.16": "float16", "16.32": "mixed_float16"}[precision]
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        found = weights_after(settings, Batch(4, 2, 1))
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    assert {weight.dtype for weight in found} == {np.dtype(kind)}
    for mine, theirs in zip(found, whole("mnist_cnn")):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=0.02)
