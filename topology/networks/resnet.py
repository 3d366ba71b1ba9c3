"""The residual networks for ImageNet, with the layer names that Keras gives them."""

from __future__ import annotations

from typing import Dict, Tuple

from ipulaunch.configs.images import ImageModel, ImageSettings
from ipulaunch.topology.network import Network
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import norm, pixels

_EPSILON = 1.001e-5
BLOCKS: Dict[str, Tuple[int, ...]] = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


def resnet(settings: ImageSettings) -> Network:
    """A convolution and a pool that shrink the image to a quarter, then four stacks of residual blocks."""
    model, net = settings.model, Builder()
    x = net.pad("conv1_pad", pixels(net, settings), 3)
    x = _conv(net, "conv1", x, 64, 7, model, strides=2, padding="valid")
    x = net.activation("conv1_relu", x, "relu")
    x = net.pad("pool1_pad", x, 1)
    x = net.pool("pool1_pool", x, "max", 3, strides=2)
    block, channels = (_bottleneck, 256) if model.name == "resnet50" else (_basic, 64)
    read = 64
    for stack, blocks in enumerate(BLOCKS[model.name], start=2):
        for number in range(1, blocks + 1):
            strides = 2 if number == 1 and stack > 2 else 1
            x = block(net, f"conv{stack}_block{number}", x, read, channels, strides, model)
            read = channels
        channels *= 2
    x = net.global_average_pool("avg_pool", x)
    net.dense("predictions", x, settings.data.classes)
    return net.network(model.name)


def _bottleneck(net: Builder, name: str, x: str, read: int, channels: int, strides: int, model: ImageModel) -> str:
    """1 x 1 to a quarter of the channels, 3 x 3, and 1 x 1 back; Keras strides in the first of them."""
    shortcut = _shortcut(net, name, x, read, channels, strides, model)
    x = _conv(net, f"{name}_1", x, channels // 4, 1, model, strides=strides)
    x = net.activation(f"{name}_1_relu", x, "relu")
    x = _conv(net, f"{name}_2", x, channels // 4, 3, model)
    x = net.activation(f"{name}_2_relu", x, "relu")
    x = _conv(net, f"{name}_3", x, channels, 1, model)
    return net.activation(f"{name}_out", net.add(f"{name}_add", shortcut, x), "relu")


def _basic(net: Builder, name: str, x: str, read: int, channels: int, strides: int, model: ImageModel) -> str:
    """Two convolutions of 3 x 3."""
    shortcut = _shortcut(net, name, x, read, channels, strides, model)
    x = _conv(net, f"{name}_1", x, channels, 3, model, strides=strides)
    x = net.activation(f"{name}_1_relu", x, "relu")
    x = _conv(net, f"{name}_2", x, channels, 3, model)
    return net.activation(f"{name}_out", net.add(f"{name}_add", shortcut, x), "relu")


def _shortcut(net: Builder, name: str, x: str, read: int, channels: int, strides: int, model: ImageModel) -> str:
    """What the block adds to: its input, convolved where the shape changes."""
    return x if read == channels else _conv(net, f"{name}_0", x, channels, 1, model, strides=strides)


def _conv(
    net: Builder, prefix: str, x: str, channels: int, kernel: int, model: ImageModel, strides: int = 1,
    padding: str = "same",
) -> str:  # fmt: skip
    """A convolution and its norm; Keras has biases in its ResNet-50, the published smaller networks have none."""
    bias = model.name == "resnet50"
    x = net.conv(f"{prefix}_conv", x, channels, kernel, strides, padding, bias, initializer="he_normal")
    return norm(net, prefix, x, channels, model, _EPSILON)
