from __future__ import annotations

import pytest

from ipulaunch.configs.errors import SettingsError
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.network import Cost, Layer, Network, costs, shapes


def test_the_builder_writes_layers_down_in_order() -> None:
    net = Builder()
    x = net.input("image", (4, 4, 1), "uint8")
    y = net.activation("relu", x, "relu")
    net.add("sum", x, y)
    assert net.network("tiny") == Network(
        "tiny",
        (
            Layer("image", "input", (), {"shape": (4, 4, 1), "dtype": "uint8"}),
            Layer("relu", "activation", ("image",), {"function": "relu"}),
            Layer("sum", "add", ("image", "relu"), {}),
        ),
    )


@pytest.mark.parametrize(
    ("side", "window", "strides", "padding", "left"),
    [
        (7, 3, 1, "same", 7),
        (7, 3, 2, "same", 4),
        (8, 3, 2, "same", 4),
        (7, 3, 1, "valid", 5),
        (8, 3, 2, "valid", 3),
        (3, 3, 2, "valid", 1),
        (1, 2, 2, "same", 1),
    ],
)
def test_windows_along_a_side(side: int, window: int, strides: int, padding: str, left: int) -> None:
    net = Builder()
    x = net.input("x", (side, side, side, 2), "float32")
    x = net.conv("conv", x, 5, window, strides, padding)
    assert shapes(net.network("tiny"))["conv"] == (left, left, left, 5)
    net = Builder()
    x = net.pool("pool", net.input("x", (side, side, 2), "float32"), "max", window, strides, padding)
    assert shapes(net.network("tiny"))["pool"] == (left, left, 2)


@pytest.mark.parametrize(("side", "left"), [(8, 4), (7, 4), (1, 1)])
def test_downsampling_halves_sides_and_doubles_channels(side: int, left: int) -> None:
    net = Builder()
    net.downsample("half", net.input("x", (side, side, 3), "float32"))
    assert shapes(net.network("tiny"))["half"] == (left, left, 6)


def test_the_costs_of_each_kind_of_layer() -> None:
    net = Builder()
    x = net.input("image", (6, 6, 3), "uint8")
    x = net.normalise("normalise", x, (0.0,), (255.0,))
    x = net.pad("pad", x, 1)
    x = net.conv("conv", x, 4, 3, padding="valid", bias=False)
    x = net.conv("with_bias", x, 4, 1)
    x = net.batch_norm("batch", x, 0.9, 1e-3)
    x = net.group_norm("group", x, 2, 1e-3)
    x = net.activation("relu", x, "relu")
    x = net.add("sum", x, "group")
    net.downsample("half", x)
    x = net.pool("pool", x, "average", 2)
    y = net.global_average_pool("mean", x)
    x = net.flatten("flat", x)
    x = net.dropout("drop", x, 0.5)
    x = net.dense("dense", x, 5)
    x = net.dense("tanh", x, 2, activation="tanh")
    x = net.scale("scale", x, 1.2)
    assert (x, y) == ("scale", "mean")
    assert costs(net.network("all")) == {
        "image": Cost(0, 108, 0),
        "normalise": Cost(0, 108, 216),
        "pad": Cost(0, 192, 0),
        "conv": Cost(108, 144, 2 * 108 * 36),
        "with_bias": Cost(20, 144, 2 * 16 * 36 + 144),
        "batch": Cost(16, 144, 7 * 144),
        "group": Cost(8, 144, 7 * 144),
        "relu": Cost(0, 144, 144),
        "sum": Cost(0, 144, 144),
        "half": Cost(0, 3 * 3 * 8, 0),
        "pool": Cost(0, 36, 4 * 36),
        "mean": Cost(0, 4, 36),
        "flat": Cost(0, 36, 0),
        "drop": Cost(0, 36, 72),
        "dense": Cost(185, 5, 2 * 180 + 5),
        "tanh": Cost(12, 2, 2 * 10 + 2 + 2),
        "scale": Cost(0, 2, 2),
    }


def test_a_layer_with_nothing_left_says_which_side_would_do() -> None:
    def tiny(side: int) -> Network:
        net = Builder()
        x = net.input("x", (side, side, 1), "float32")
        for number in (1, 2, 3):
            x = net.pool(f"pool{number}", net.conv(f"conv{number}", x, 2, 3, padding="valid"), "max", 2)
        return net.network("tiny")

    with pytest.raises(SettingsError) as error:
        shapes(tiny(10))
    assert error.value.message == "conv3 of tiny takes windows of 3 x 3 from 1 x 1"
    assert error.value.hint == "use --side 22 or more, or fewer layers: see --n-conv-layers and --model"
    assert shapes(tiny(22))["pool3"] == (1, 1, 2)
    with pytest.raises(SettingsError):
        shapes(tiny(21))
