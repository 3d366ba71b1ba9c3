"""The CPU backend against plain TensorFlow on the same samples."""

from __future__ import annotations

import dataclasses
from typing import Any, List

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import plan_of

from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings
from ipulaunch.configs.settings.optimization import Optimizer
from ipulaunch.data_pipeline.order import Shuffle, epoch_order
from ipulaunch.data_pipeline.sources.synthetic import SyntheticCosmoflow
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.networks import network_of
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.backends.cpu.draws import DrawPosition, PositionedDropout
from ipulaunch.workers.backends.interface import Feed
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import Measure, measures_of
from ipulaunch.workers.models.optimizers import make_optimizer
from ipulaunch.workers.models.precision import precision

SETTINGS = CosmoflowSettings(
    data=CosmoflowData(side=8, n_train=24, n_valid=7),
    model=CosmoflowModel(conv_size=2, n_conv_layers=2, dropout=0.0),
    optimizer=Optimizer("sgd", 0.1),
)
pytestmark = pytest.mark.usefixtures("smooth")
NETWORK, MEASURES = network_of(SETTINGS), measures_of(SETTINGS)


def model_like(other: Any) -> Any:
    model = build_model(NETWORK, lambda rate, name: tf.keras.layers.Dropout(rate, name=name))
    model.set_weights(other.get_weights())
    return model


@pytest.mark.parametrize(
    "batch",
    [Batch(1, 1, 1), pytest.param(Batch(4, 3, 2), marks=pytest.mark.core), Batch(2, 5, 2)],
    ids=lambda batch: f"{batch.micro_size}x{batch.replicas}x{batch.accumulation}",
)
def test_an_update_is_plain_gradient_descent_on_the_global_batch(batch: Batch) -> None:
    backend = CpuBackend(SETTINGS, plan_of(batch), 0, Alone())
    model = build_model(NETWORK, backend.dropout)
    plain = model_like(model)
    source = SyntheticCosmoflow(SETTINGS.data, "train", 0)

    trained = backend.prepare(model, make_optimizer(SETTINGS, batch, 1), MEASURES, None)
    stream = training_stream(
        source, batch, backend.replicas, shuffle=Shuffle(0), updates=range(1), by_replica=True, threads=1
    )
    history = trained.fit(Feed(stream), epochs=1, steps_per_epoch=1, callbacks=[]).history

    inputs, targets = source.load(epoch_order(source.samples, Shuffle(0), 0)[: batch.global_size])
    with tf.GradientTape() as tape:
        outputs = plain(inputs, training=True)
        loss = tf.reduce_mean(tf.square(outputs - targets))
    for weight, gradient in zip(plain.trainable_variables, tape.gradient(loss, plain.trainable_variables)):
        weight.assign_sub(0.1 * gradient)

    assert history["loss"] == [pytest.approx(float(loss), rel=1e-5)]
    assert history["mae"] == [pytest.approx(float(tf.reduce_mean(tf.abs(outputs - targets))), rel=1e-5)]
    for mine, theirs in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_network_that_is_not_divided_is_not_made_twice() -> None:
    """The first update of a deep network waits for each model that is made."""
    batch = Batch(2, 2, 1)
    backend = CpuBackend(SETTINGS, plan_of(batch), 0, Alone())
    model = build_model(NETWORK, backend.dropout)
    trained = backend.prepare(model, make_optimizer(SETTINGS, batch, 1), MEASURES, None)
    assert trained.stages.models == [model]


@pytest.mark.core
def test_padding_weighs_nothing_in_an_update() -> None:
    batch = Batch(8, 2, 2)  # 32 places for 24 samples
    backend = CpuBackend(SETTINGS, plan_of(batch), 0, Alone())
    model = build_model(NETWORK, backend.dropout)
    plain = model_like(model)
    source = SyntheticCosmoflow(SETTINGS.data, "train", 0)
    trained = backend.prepare(model, make_optimizer(SETTINGS, batch, 1), MEASURES, None)
    stream = training_stream(
        source,
        batch,
        backend.replicas,
        shuffle=Shuffle(0),
        updates=range(1),
        by_replica=True,
        threads=1,
        remainder="pad",
        traced=False,
    )
    trained.fit(Feed(stream), epochs=1, steps_per_epoch=1, callbacks=[])

    inputs, targets = source.load(np.arange(24))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.reduce_mean(tf.square(plain(inputs) - targets), axis=-1)) / batch.global_size
    for weight, gradient in zip(plain.trainable_variables, tape.gradient(loss, plain.trainable_variables)):
        weight.assign_sub(0.1 * gradient)
    for mine, theirs in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.core
def test_gradients_of_16_bit_weights_have_32_bits_up_to_the_optimizer() -> None:
    """Their sum has more digits than 16 bits hold, and without the loss scale they are below what 16 bits resolve."""
    batch, size, scale = Batch(1, 2, 1), 2.0**-30, 2.0**14
    settings = dataclasses.replace(SETTINGS, optimizer=Optimizer("adam", 0.1, loss_scaling=scale))
    backend = CpuBackend(settings, plan_of(batch), 0, Alone())
    with precision("16.16"):
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(1,))])
    loss = Measure("loss", lambda targets, outputs: tf.reduce_sum(targets * tf.cast(outputs, tf.float32), axis=-1))
    optimizer = make_optimizer(settings, batch, 1)
    trained = backend.prepare(model, optimizer, (loss,), None)
    gradients = tf.constant([[[2048 * size]], [[1 * size]]])  # of the two replicas
    stream = tf.data.Dataset.from_tensor_slices((tf.ones([2, 1, 1], tf.float16), gradients))
    trained.fit(Feed(stream), epochs=1, steps_per_epoch=1, callbacks=[])
    (weight,) = model.trainable_variables
    assert weight.dtype == tf.float16
    taken = optimizer.get_slot(weight, "m").numpy() / 0.1
    np.testing.assert_allclose(taken, [[1024.5 * size]], rtol=1e-6)


@pytest.mark.core
@pytest.mark.parametrize("batch", [Batch(1, 1, 1), Batch(2, 4, 3)], ids=["one by one", "padded"])
def test_validation_is_the_mean_over_the_whole_set(batch: Batch) -> None:
    backend = CpuBackend(SETTINGS, plan_of(batch), 0, Alone())
    model = build_model(NETWORK, backend.dropout)
    trained = backend.prepare(model, make_optimizer(SETTINGS, batch, 1), MEASURES, None)
    source = SyntheticCosmoflow(SETTINGS.data, "validation", 0)
    stream = validation_stream(source, batch, backend.replicas, threads=1)
    told: List[Any] = []
    found = backend.validate(trained, Feed(stream), source.samples, batch.micro_size, lambda *done: told.append(done))
    assert told == [(step + 1, len(told)) for step in range(len(list(stream)))]

    inputs, targets = source.load(np.arange(source.samples))
    error = model(inputs).numpy() - targets
    assert found == {
        "loss": pytest.approx(float(np.mean(error**2)), rel=1e-5),
        "mae": pytest.approx(float(np.mean(np.abs(error))), rel=1e-5),
    }


@pytest.mark.core
def test_dropout_depends_on_position_and_layer_alone() -> None:
    ones = tf.ones([1, 1000])

    def mask(seed: int, name: str, micro_batch: int) -> Any:
        position = DrawPosition(seed)
        position.micro_batch.assign(micro_batch)
        return PositionedDropout(0.5, name, position)(ones, training=True).numpy()

    first = mask(0, "fc1", 7)
    assert np.array_equal(first, mask(0, "fc1", 7))
    for other in (mask(1, "fc1", 7), mask(0, "fc2", 7), mask(0, "fc1", 8)):
        assert not np.array_equal(first, other)
    assert set(np.unique(first)) == {0.0, 2.0}
    assert abs(first.mean() - 1) < 0.15


def test_dropout_rests_outside_training() -> None:
    ones = tf.ones([1, 10])
    assert np.array_equal(PositionedDropout(0.5, "fc1", DrawPosition(0))(ones, training=False), ones)
