from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings
from ipulaunch.configs.settings.images import MODELS, ImageData, ImageModel, ImageSettings
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.network import Network, costs, shapes
from ipulaunch.topology.networks.splits import split_points, stage_ends
from ipulaunch.workers.models.build import build_model, stage_models


def dropout(rate: float, name: str) -> Any:
    return tf.keras.layers.Dropout(rate, name=name)


def image_network(name: str, side: int = 32, classes: int = 10, **options: Any) -> Network:
    data = ImageData(side=side, classes=classes)
    return network_of(ImageSettings(model=ImageModel(name=name, **options), data=data))


def volume_network(name: str, **options: Any) -> Network:
    model = CosmoflowModel(name=name, n_conv_layers=2, conv_size=2, fc1_size=8, fc2_size=4, **options)
    return network_of(CosmoflowSettings(model=model, data=CosmoflowData(side=8)))


NETWORKS: Dict[str, Network] = {
    **{name: image_network(name) for name in MODELS},
    "resnet18 with groups": image_network("resnet18", norm_layer="group_norm"),
    "cosmoflow": volume_network("cosmoflow"),
    "cosmoflow_v1": volume_network("cosmoflow_v1", pooling_type="AveragePooling3D"),
}
# One of each kind of layer, and quick to run.
QUICK = ["cifar_resnet8", "mnist_cnn", "cosmoflow", "cosmoflow_v1"]
# The others are deeper or wider ones of these kinds, and take long to build: they are left to the night.
DAILY = [*QUICK, "cifar_cnn", "resnet18 with groups"]
KINDS = [
    *(pytest.param(name, marks=pytest.mark.core) for name in DAILY),
    *(pytest.param(name, marks=pytest.mark.night) for name in NETWORKS if name not in DAILY),
]


def samples(network: Network) -> Any:
    options = network.layers[0].options
    return np.random.RandomState(0).randint(0, 255, (2, *options["shape"])).astype(options["dtype"])


@pytest.fixture(params=["float32", "float16", "mixed_float16"])
def policy(request: Any) -> Iterator[str]:
    tf.keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    tf.keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("name", KINDS)
def test_shapes_and_parameters_are_those_of_keras(name: str) -> None:
    network = NETWORKS[name]
    model = build_model(network, dropout)
    known = costs(network)
    assert {layer.name: layer.get_output_at(0).shape[1:] for layer in model.layers} == shapes(network)
    assert {layer.name: layer.count_params() for layer in model.layers} == {
        layer: cost.parameters for layer, cost in known.items()
    }
    assert model.name == network.name


class Described(NamedTuple):
    """What a layer of a Keras model is."""

    kind: str
    shape: Tuple[int, ...]
    parameters: int
    sources: List[str]
    strides: Any


def described(model: Any) -> Dict[str, Described]:
    """The layers behind the normalised pixels."""

    def sources(layer: Any) -> List[str]:
        read = layer.input if isinstance(layer.input, list) else [layer.input]
        return [] if layer.name == "conv1_pad" else [tensor.name.split("/")[0] for tensor in read]

    layers = model.layers[[layer.name for layer in model.layers].index("conv1_pad") :]
    return {
        layer.name: Described(
            *(type(layer).__name__, tuple(layer.output.shape[1:]), layer.count_params(), sources(layer)),
            getattr(layer, "strides", None),
        )
        for layer in layers
    }


def published(theirs: Dict[str, Described]) -> Dict[str, Described]:
    """The ResNet-50 of Keras without biases in its convolutions, and with strides in the second of a block."""
    found = {
        name: layer._replace(parameters=layer.parameters - layer.shape[-1]) if layer.kind == "Conv2D" else layer
        for name, layer in theirs.items()
    }
    for block, side in (("conv3_block1", 56), ("conv4_block1", 28), ("conv5_block1", 14)):
        for name in (f"{block}_1_conv", f"{block}_1_bn", f"{block}_1_relu"):
            found[name] = found[name]._replace(shape=(side, side, found[name].shape[-1]))
        assert (found[f"{block}_1_conv"].strides, found[f"{block}_2_conv"].strides) == ((2, 2), (1, 1))
        found[f"{block}_1_conv"] = found[f"{block}_1_conv"]._replace(strides=(1, 1))
        found[f"{block}_2_conv"] = found[f"{block}_2_conv"]._replace(strides=(2, 2))
    return found


def test_resnet50_is_the_one_of_keras_without_biases_and_with_later_strides() -> None:
    theirs = described(tf.keras.applications.ResNet50(weights=None, input_shape=(224, 224, 3)))
    assert described(build_model(image_network("resnet50", 224, 1000), dropout)) == published(theirs)


def test_blocks_that_add_to_their_input_give_it_back_before_training() -> None:
    """Their last norm multiplies by 0, so what comes out is what went in."""
    network = image_network("resnet50")
    model = build_model(network, dropout)
    for block in ("conv2_block2",):
        (before, _) = next(layer for layer in network.layers if layer.name == f"{block}_add").inputs
        both = tf.keras.Model(model.input, [model.get_layer(name).output for name in (before, f"{block}_out")])
        given, result = both(samples(network), training=True)
        assert np.array_equal(given, result) and np.any(given)
    gammas = {layer.name: layer.gamma.numpy() for layer in model.layers if layer.name.endswith("_bn")}
    assert {name for name, gamma in gammas.items() if not gamma.any()} == {
        f"conv{stack}_block{number}_3_bn"
        for stack, blocks in ((2, 3), (3, 4), (4, 6), (5, 3))
        for number in range(2, blocks + 1)
    }
    assert all(gamma.any() == gamma.all() for gamma in gammas.values())


@pytest.mark.core
@pytest.mark.parametrize("name", QUICK)
def test_weights_learn_in_every_precision(name: str, policy: str) -> None:
    network = NETWORKS[name]
    model = build_model(network, dropout, native_half=False)
    with tf.GradientTape() as tape:
        outputs = model(samples(network), training=True)
        loss = tf.reduce_mean(tf.cast(outputs, tf.float32) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert outputs.dtype == ("float32" if policy == "float32" else "float16")
    # Keras keeps the parameters of batch norms in 32 bits under every policy.
    kernel = next(weight for weight in model.trainable_variables if "kernel" in weight.name)
    assert kernel.dtype == ("float16" if policy == "float16" else "float32")
    assert all(np.isfinite(tf.cast(gradient, tf.float32)).all() for gradient in gradients)
    assert model.input.dtype == network.layers[0].options["dtype"]


@pytest.mark.parametrize("name", QUICK)
def test_stages_one_after_the_other_are_the_model(name: str, policy: str) -> None:
    network = NETWORKS[name]
    model = build_model(network, dropout, native_half=False)
    points = split_points(network)
    for splits in (points[:1], points) if policy == "float32" else (points[::3],):
        ends = stage_ends(network, splits)
        stages = stage_models(model, ends)
        assert [stage.layers[-1].name for stage in stages] == [*ends, network.layers[-1].name]
        values = samples(network)
        for stage in stages:
            values = stage(values, training=False)
        whole = model(samples(network), training=False)
        np.testing.assert_allclose(values, whole, rtol=1e-5, atol=1e-6)
        shared = [id(weight) for stage in stages for weight in stage.weights]
        assert sorted(shared) == sorted(id(weight) for weight in model.weights)


def test_the_backend_makes_the_dropout_layers() -> None:
    made = []

    def noted(rate: float, name: str) -> Any:
        made.append((name, rate))
        return dropout(rate, name)

    build_model(image_network("mnist_cnn", dropout=0.125), noted)
    assert made == [("flatten_dropout", 0.125), ("fc1_dropout", 0.125)]


def test_where_weights_start() -> None:
    def initializers(name: str) -> Dict[str, str]:
        layers = build_model(NETWORKS[name], dropout).layers
        return {
            layer.name: type(layer.kernel_initializer).__name__ for layer in layers if "Conv" in type(layer).__name__
        }

    assert set(initializers("cifar_resnet8").values()) == {"VarianceScaling"}
    assert set(initializers("mnist_cnn").values()) == set(initializers("cosmoflow").values()) == {"GlorotUniform"}
    found = initializers("resnet18")
    assert found.pop("conv1_conv") == "GlorotUniform"  # the stem is made by Keras applications
    assert set(found.values()) == {"VarianceScaling"}


def test_residual_weights_start_as_a_truncated_normal_of_their_inputs() -> None:
    model = build_model(NETWORKS["cifar_resnet8"], dropout)
    layer = model.get_layer("conv4_block1_layer2_conv")
    settings = layer.kernel_initializer.get_config()
    assert {name: settings[name] for name in ("scale", "mode", "distribution")} == {
        "scale": 1.0,
        "mode": "fan_in",
        "distribution": "truncated_normal",
    }
    values = layer.kernel.numpy()
    assert values.std() == pytest.approx((1 / (3 * 3 * 64)) ** 0.5, rel=0.05)
    assert abs(values).max() <= 2 / 0.87962566 * (1 / (3 * 3 * 64)) ** 0.5 * 1.0001


def test_pools_have_their_windows_and_volumes_can_be_padded() -> None:
    net = Builder()
    x = net.pad("pad", net.input("volume", (3, 3, 3, 1), "float32"), 1)
    x = net.pool("pool", x, "max", 3, strides=2, padding="same")
    net.global_average_pool("mean", x)
    model = build_model(net.network("tiny"), dropout)
    values = np.zeros((1, 3, 3, 3, 1), np.float32)
    values[0, 0, 0, 0, 0] = 8
    assert model(values).numpy().item() == pytest.approx(8 * 8 / 27)  # two windows a side see it
