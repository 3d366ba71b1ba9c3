from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings
from ipulaunch.data_pipeline.sources.normalise import density
from ipulaunch.topology.networks import network_of
from ipulaunch.workers.models.build import build_model

SMALL = CosmoflowModel(n_conv_layers=1, conv_size=1, dropout=0.0)


def built(data: CosmoflowData, model: CosmoflowModel) -> Any:
    network = network_of(CosmoflowSettings(data=data, model=model))
    return build_model(network, lambda rate, name: tf.keras.layers.Dropout(rate, name=name))


def model_of(side: int = 32, **options: Any) -> Any:
    return built(CosmoflowData(side=side), CosmoflowModel(**options))


def test_the_published_network() -> None:
    layers = {layer.name: layer for layer in model_of(side=64).layers}
    convolutions = [layers[f"conv{block}"] for block in range(1, 6)]
    assert [layer.filters for layer in convolutions] == [16, 32, 64, 128, 256]
    assert {layer.kernel_size for layer in convolutions} == {(2, 2, 2)}
    assert {layer.padding for layer in convolutions} == {"same"}
    assert (layers["fc1"].units, layers["fc2"].units, layers["targets"].units) == (128, 64, 4)
    assert layers["fc1"].input_shape == (None, 2 * 2 * 2 * 256)
    assert (layers["fc1_dropout"].rate, layers["fc2_dropout"].rate) == (0.2, 0.2)


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        ({"conv_size": 3}, "conv2", {"filters": 6}),
        ({"kernel_size": 3}, "conv1", {"kernel_size": (3, 3, 3)}),
        ({"fc1_size": 5}, "fc1", {"units": 5}),
        ({"fc2_size": 7}, "fc2", {"units": 7}),
        ({"dropout": 0.75}, "fc2_dropout", {"rate": 0.75}),
    ],
)
def test_an_option_reaches_its_layer(options: Dict[str, Any], name: str, expected: Dict[str, Any]) -> None:
    layer = model_of(**options).get_layer(name)
    assert {key: getattr(layer, key) for key in expected} == expected


@pytest.mark.parametrize("activation", ["LeakyReLU", "relu", "elu", "selu", "tanh"])
@pytest.mark.parametrize("pooling", ["MaxPool3D", "AveragePooling3D"])
def test_every_activation_and_pooling_runs(activation: str, pooling: str) -> None:
    model = model_of(side=4, n_conv_layers=2, conv_size=1, hidden_activation=activation, pooling_type=pooling)
    assert model(np.ones((1, 4, 4, 4, 4), np.int16)).shape == (1, 4)
    assert pooling[:3] in type(model.get_layer("conv1_pool")).__name__


def test_outputs_reach_1_2_and_no_further() -> None:
    model = model_of(side=4, n_conv_layers=1, conv_size=1)
    model.get_layer("targets").set_weights([np.zeros((64, 4)), np.array([100.0, -100.0, 0.0, 0.0])])
    np.testing.assert_allclose(model(np.ones((1, 4, 4, 4, 4), np.int16))[0], [1.2, -1.2, 0, 0], rtol=1e-6)


def test_the_host_can_normalise_instead_with_the_same_values() -> None:
    counts = np.random.RandomState(0).randint(0, 50, (2, 4, 4, 4, 4)).astype(np.int16)
    for how in ("log", "mean"):
        data = CosmoflowData(side=4, normalise=how)
        on_device, on_host = built(data, SMALL), built(replace(data, host_preprocess=True), SMALL)
        on_host.set_weights(on_device.get_weights())
        np.testing.assert_allclose(on_device(counts), on_host(density(counts, how, tf.float32)), rtol=1e-5, atol=1e-6)


def test_a_volume_divided_by_its_mean_has_mean_1() -> None:
    counts = np.arange(1, 2 * 64 * 4 + 1).reshape(2, 4, 4, 4, 4).astype(np.int16)
    np.testing.assert_allclose(np.mean(density(counts, "mean", tf.float32), axis=(1, 2, 3, 4)), [1, 1], rtol=1e-5)


def test_a_mean_in_16_bits_is_that_of_all_particles() -> None:
    counts = np.full((1, 64, 64, 64, 4), 100, np.int16)  # 16 bits would not hold their sum, by a factor of a thousand
    np.testing.assert_allclose(density(counts, "mean", tf.float16).numpy().max(), 1, rtol=1e-3)


def test_a_volume_of_zeros_stays_one_of_zeros() -> None:
    counts = np.zeros((1, 4, 4, 4, 4), np.int16)
    for how in ("log", "mean"):
        assert np.array_equal(density(counts, how, tf.float32), counts)


def test_counts_become_log_density_on_the_device() -> None:
    density = built(CosmoflowData(side=4, normalise="log"), SMALL).get_layer("density")
    np.testing.assert_allclose(density(np.array([[0, 1, 32767]], np.int16))[0], np.log1p([0, 1, 32767]), rtol=1e-6)
