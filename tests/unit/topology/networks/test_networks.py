from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings import workloads
from ipulaunch.configs.settings.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings
from ipulaunch.configs.settings.images import MODELS, ImageData, ImageModel, ImageSettings
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.network import Layer, Network, costs, shapes
from ipulaunch.topology.networks.resnet import RESNETS, resnet


def image_network(name: str, side: int = 32, classes: int = 10, **options: Any) -> Network:
    return network_of(ImageSettings(model=ImageModel(name=name, **options), data=ImageData(side=side, classes=classes)))


def layer_of(network: Network, name: str) -> Layer:
    return next(layer for layer in network.layers if layer.name == name)


def parameters(network: Network) -> int:
    return sum(cost.parameters for cost in costs(network).values())


def test_a_deeper_network_has_the_blocks_of_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RESNETS, "resnet101", RESNETS["resnet50"]._replace(blocks=(3, 4, 23, 3)))
    data = ImageData(side=224, classes=1000)
    assert parameters(resnet(ImageSettings(model=ImageModel(name="resnet101"), data=data))) == 44_549_160 + 105_344


def test_the_networks_that_drop_are_those_that_dropout_is_shipped_for() -> None:
    made = {name: image_network(name) for name in MODELS}
    for name in ("cosmoflow", "cosmoflow_v1"):
        model, data = CosmoflowModel(name=name), CosmoflowData(side=128)
        made[name] = network_of(CosmoflowSettings(model=model, data=data))
    drops = sorted(name for name, network in made.items() if any(layer.kind == "dropout" for layer in network.layers))
    assert workloads._SHIPPED_FOR["model.dropout"] == ("model.name", tuple(drops))


@pytest.mark.parametrize("name", MODELS)
def test_every_network_is_in_order_and_names_each_layer_once(name: str) -> None:
    network = image_network(name)
    names = [layer.name for layer in network.layers]
    assert network.name == name
    assert len(set(names)) == len(names)
    for position, layer in enumerate(network.layers):
        assert all(names.index(read) < position for read in layer.inputs)
    assert shapes(network)[names[-1]] == (10,)


# Counts that the networks are known for, with the moving statistics of their batch norms; the published ResNet-18 and
# 34 have a convolution of 64 x 64 and its norm in the first shortcut too, where others add the input.
@pytest.mark.parametrize(
    ("name", "side", "classes", "expected"),
    [
        ("resnet18", 224, 1000, 11_689_512 + 9_600 + 64 * 64 + 4 * 64),
        ("resnet34", 224, 1000, 21_797_672 + 17_024 + 64 * 64 + 4 * 64),
        ("resnet50", 224, 1000, 25_557_032 + 53_120),
        ("cifar_resnet20", 32, 10, 269_722 + 1_376),
        ("cifar_cnn", 32, 10, 1_250_858),
        ("toy_model", 32, 10, 112 + 40 + 90),
        ("toy_model_bn", 32, 10, 112 + 40 + 90 + 4 * 4 + 4 * 8),
    ],
)
def test_parameters_are_those_of_the_published_networks(name: str, side: int, classes: int, expected: int) -> None:
    assert parameters(image_network(name, side, classes)) == expected


def test_a_resnet_needs_the_published_work() -> None:
    """4.1 billion multiply-adds is what the ResNet-50 with strides in its 3 x 3 convolutions is known for."""
    flops = sum(cost.flops for cost in costs(image_network("resnet50", 224, 1000)).values())
    assert flops / 2e9 == pytest.approx(4.1, rel=0.02)


@pytest.mark.parametrize("name", [name for name in MODELS if "resnet" in name])
def test_convolutions_of_residual_networks_have_no_biases(name: str) -> None:
    layers = image_network(name).layers
    assert {layer.options["bias"] for layer in layers if layer.kind == "conv"} == {False}
    assert [layer.options["bias"] for layer in layers if layer.kind == "dense"] == [True]
    assert {layer.options["epsilon"] for layer in layers if layer.kind == "batch_norm"} == {1.001e-5}


@pytest.mark.parametrize(
    ("name", "striding"), [("resnet18", "_1_conv"), ("resnet34", "_1_conv"), ("resnet50", "_2_conv")]
)
def test_where_a_resnet_strides_and_which_shortcuts_are_convolved(name: str, striding: str) -> None:
    layers = image_network(name).layers
    first = [f"conv{stack}_block1" for stack in (2, 3, 4, 5)]
    assert [layer.name for layer in layers if layer.name.endswith("_0_conv")] == [f"{block}_0_conv" for block in first]
    strided = {layer.name for layer in layers if layer.kind == "conv" and layer.options["strides"] == 2}
    assert strided == {"conv1_conv", *(block + part for block in first[1:] for part in ("_0_conv", striding))}


@pytest.mark.parametrize("norm", ["batch_norm", "group_norm"])
def test_bottlenecks_that_add_to_their_input_start_from_it(norm: str) -> None:
    def from_zero(name: str) -> set:
        norms = [layer for layer in image_network(name, norm_layer=norm).layers if layer.kind == norm]
        assert {layer.options["gamma"] for layer in norms} <= {"ones", "zeros"}
        return {layer.name[:-3] for layer in norms if layer.options["gamma"] == "zeros"}

    later = {2: (2, 3), 3: (2, 3, 4), 4: (2, 3, 4, 5, 6), 5: (2, 3)}
    assert from_zero("resnet50") == {f"conv{stack}_block{n}_3" for stack, numbers in later.items() for n in numbers}
    assert from_zero("resnet18") == from_zero("cifar_resnet20") == set()


def test_the_layers_of_the_smallest_cifar_resnet() -> None:
    network = image_network("cifar_resnet8")
    names = [layer.name for layer in network.layers]
    assert names == [
        *("image", "normalise", "conv1_conv", "conv1_bn", "conv1_relu"),
        *("conv2_block1_layer1_conv", "conv2_block1_layer1_bn", "conv2_block1_layer1_relu"),
        *("conv2_block1_layer2_conv", "conv2_block1_layer2_bn", "conv2_block1_add", "conv2_block1_post_addition_relu"),
        *("conv3_block1_shortcut", "conv3_block1_layer1_conv_ds", "conv3_block1_layer1_bn", "conv3_block1_layer1_relu"),
        *("conv3_block1_layer2_conv", "conv3_block1_layer2_bn", "conv3_block1_add", "conv3_block1_post_addition_relu"),
        *("conv4_block1_shortcut", "conv4_block1_layer1_conv_ds", "conv4_block1_layer1_bn", "conv4_block1_layer1_relu"),
        *("conv4_block1_layer2_conv", "conv4_block1_layer2_bn", "conv4_block1_add", "conv4_block1_post_addition_relu"),
        *("avg_pool", "fc_layer"),
    ]
    found = shapes(network)
    assert found["conv3_block1_shortcut"] == found["conv3_block1_layer2_bn"] == (16, 16, 32)
    assert found["conv4_block1_shortcut"] == found["conv4_block1_layer2_bn"] == (8, 8, 64)
    assert layer_of(network, "conv3_block1_layer1_conv_ds").options["strides"] == 2
    assert layer_of(network, "conv3_block1_add").inputs == ("conv3_block1_shortcut", "conv3_block1_layer2_bn")


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_a_resnet_ends_in_one_pixel_of_the_smallest_images(name: str) -> None:
    network = image_network(name, side=32)
    assert shapes(network)[layer_of(network, "avg_pool").inputs[0]][:2] == (1, 1)


@pytest.mark.parametrize("side", [1, 7, 32, 224])
def test_a_cifar_resnet_takes_any_size(side: int) -> None:
    assert shapes(image_network("cifar_resnet8", side))["conv4_block1_post_addition_relu"] == (-(-side // 4),) * 2 + (
        64,
    )


def test_where_pixels_enter() -> None:
    data = ImageData(side=28, channels=1, mean=(3.0,))
    settings = ImageSettings(model=ImageModel(name="mnist_cnn"), data=data)
    first, second, *_ = network_of(settings).layers
    assert first == Layer("image", "input", (), {"shape": (28, 28, 1), "dtype": "uint8"})
    assert second == Layer("normalise", "normalise", ("image",), {"mean": (3.0,), "std": (255.0,)})
    floats = replace(settings, data=replace(data, eight_bit_transfer=False))
    first, second, *_ = network_of(floats).layers
    assert (first.options["dtype"], second.kind) == ("float32", "normalise")
    on_host = replace(settings, data=replace(floats.data, host_preprocess=True))
    first, second, *_ = network_of(on_host).layers
    assert (first.name, first.options["dtype"], second.kind) == ("image", "float32", "conv")


@pytest.mark.parametrize("name", ["resnet50", "cifar_resnet8"])
def test_the_norm_is_a_setting(name: str) -> None:
    norms = [layer for layer in image_network(name, norm_momentum=0.9).layers if layer.kind.endswith("norm")]
    assert {(layer.kind, layer.options["momentum"]) for layer in norms} == {("batch_norm", 0.9)}
    grouped = [layer for layer in image_network(name, norm_layer="group_norm").layers if layer.kind.endswith("norm")]
    assert [layer.name.replace("_gn", "_bn") for layer in grouped] == [layer.name for layer in norms]
    few = min(shapes(image_network(name))[layer.name][-1] for layer in norms)
    assert {layer.options["groups"] for layer in grouped} == {min(few, 32), 32}


def test_groups_must_divide_the_channels() -> None:
    with pytest.raises(SettingsError) as error:
        image_network("resnet18", norm_layer="group_norm", norm_groups=24)
    assert "conv1_gn of resnet18 has 64 channels, which 24 groups do not divide" in error.value.message


@pytest.mark.parametrize("name", ["cifar_cnn", "mnist_cnn"])
def test_one_dropout_overrides_all(name: str) -> None:
    def rates(network: Network) -> set:
        return {layer.options["rate"] for layer in network.layers if layer.kind == "dropout"}

    assert rates(image_network(name)) == {0.25, 0.5}
    assert rates(image_network(name, dropout=0.1)) == {0.1}
    assert rates(image_network(name, dropout=0.0)) == {0.0}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet50", {"dropout": 0.5}, "model.dropout is 0.5, and resnet50 drops nothing"),
        ("mnist_cnn", {"norm_layer": "group_norm"}, "--norm-layer is group_norm, and mnist_cnn normalises nothing"),
    ],
)
def test_settings_without_use_are_refused(name: str, options: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        image_network(name, **options)


def test_an_image_too_small_is_refused_with_the_smallest_that_is_not() -> None:
    with pytest.raises(SettingsError) as error:
        image_network("mnist_cnn", side=9)
    assert error.value.message == "pool2 of mnist_cnn takes windows of 2 x 2 from 1 x 1"
    assert error.value.hint.startswith("use --side 10 or more")
    image_network("mnist_cnn", side=10)


def test_the_published_cosmoflow() -> None:
    network = network_of(CosmoflowSettings())
    found = shapes(network)
    assert [layer.name for layer in network.layers[:5]] == [
        *("counts", "density", "conv1", "conv1_activation", "conv1_pool")
    ]
    assert [layer.name for layer in network.layers[-9:]] == [
        *("flatten", "fc1", "fc1_activation", "fc1_dropout", "fc2", "fc2_activation", "fc2_dropout"),
        *("targets", "stretch"),
    ]
    assert [found[f"conv{block}"] for block in range(1, 6)] == [
        *((64, 64, 64, 16), (32, 32, 32, 32), (16, 16, 16, 64), (8, 8, 8, 128), (4, 4, 4, 256))
    ]
    assert found["flatten"] == (2048,)


def test_the_first_cosmoflow_has_equal_channels_no_padding_and_dropout_first() -> None:
    network = network_of(CosmoflowSettings(model=CosmoflowModel(name="cosmoflow_v1"), data=CosmoflowData(side=128)))
    found = shapes(network)
    assert [found[f"conv{block}"][0] for block in range(1, 6)] == [127, 62, 30, 14, 6]
    assert {found[f"conv{block}"][-1] for block in range(1, 6)} == {16}
    assert found["flatten"] == (27 * 16,)
    for name in ("fc1", "fc2", "targets"):
        assert layer_of(network, name).inputs == (f"{name}_dropout",)


def test_densities_from_the_host_are_the_input() -> None:
    first = network_of(CosmoflowSettings(data=CosmoflowData(host_preprocess=True))).layers[0]
    assert (first.name, first.kind, first.options["dtype"]) == ("density", "input", "float32")


@pytest.mark.parametrize(("name", "side", "smallest"), [("cosmoflow", 31, 32), ("cosmoflow_v1", 62, 63)])
def test_a_volume_too_small_is_refused(name: str, side: int, smallest: int) -> None:
    def made(side: int) -> Network:
        return network_of(CosmoflowSettings(model=CosmoflowModel(name=name), data=CosmoflowData(side=side)))

    with pytest.raises(SettingsError) as error:
        made(side)
    assert f"--side {smallest} or more" in error.value.hint
    made(smallest)
