"""The residual networks as Graphcore published them, for ImageNet with the layer names of Keras, and for CIFAR."""

from __future__ import annotations

from typing import Callable, NamedTuple, Tuple

from ipulaunch.configs.settings.images import ImageModel, ImageSettings
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import conv, norm, pixels
from ipulaunch.topology.networks.network import Network

_CIFAR_CHANNELS = (16, 32, 64)
# Blocks in each stack: 6 n + 2 layers have weights.
CIFAR_BLOCKS = {f"cifar_resnet{6 * blocks + 2}": blocks for blocks in (1, 3, 5, 7, 9)}


def resnet(settings: ImageSettings) -> Network:
    """A convolution and a pool that shrink the image to a quarter, then four stacks of residual blocks."""
    model, net = settings.model, Builder()
    x = net.pad("conv1_pad", pixels(net, settings), 3)
    # The stem is Keras's, and its weights start as in Keras.
    x = net.conv("conv1_conv", x, 64, 7, strides=2, padding="valid", bias=False)
    x = net.activation("conv1_relu", norm(net, "conv1", x, 64, model), "relu")
    x = net.pad("pool1_pad", x, 1)
    x = net.pool("pool1_pool", x, "max", 3, strides=2)
    block, channels, stacks = RESNETS[model.name]
    for stack, blocks in enumerate(stacks, start=2):
        for number in range(1, blocks + 1):
            is_first = number == 1
            strides = 2 if is_first and stack > 2 else 1
            x = block(net, f"conv{stack}_block{number}", x, channels, strides, model, is_first)
        channels *= 2
    x = net.global_average_pool("avg_pool", x)
    net.dense("predictions", x, settings.data.classes)
    return net.network(model.name)


def _bottleneck(net: Builder, name: str, x: str, channels: int, strides: int, model: ImageModel, is_first: bool) -> str:
    """1 x 1 to a quarter of the channels, 3 x 3, and 1 x 1 back; the stride is in the middle (version 1.5).

    A block that adds to its own input starts as the identity: its last norm starts at 0.
    """
    shortcut = _conv(net, f"{name}_0", x, channels, 1, model, strides) if is_first else x
    x = _conv(net, f"{name}_1", x, channels // 4, 1, model)
    x = net.activation(f"{name}_1_relu", x, "relu")
    x = _conv(net, f"{name}_2", x, channels // 4, 3, model, strides)
    x = net.activation(f"{name}_2_relu", x, "relu")
    x = _conv(net, f"{name}_3", x, channels, 1, model, gamma="ones" if is_first else "zeros")
    return net.activation(f"{name}_out", net.add(f"{name}_add", shortcut, x), "relu")


def _basic(net: Builder, name: str, x: str, channels: int, strides: int, model: ImageModel, is_first: bool) -> str:
    """Two convolutions of 3 x 3."""
    shortcut = _conv(net, f"{name}_0", x, channels, 1, model, strides) if is_first else x
    x = _conv(net, f"{name}_1", x, channels, 3, model, strides)
    x = net.activation(f"{name}_1_relu", x, "relu")
    x = _conv(net, f"{name}_2", x, channels, 3, model)
    return net.activation(f"{name}_out", net.add(f"{name}_add", shortcut, x), "relu")


def _conv(
    net: Builder, prefix: str, x: str, channels: int, kernel: int, model: ImageModel, strides: int = 1,
    gamma: str = "ones",
) -> str:  # fmt: skip
    """A convolution and its norm."""
    return norm(net, prefix, conv(net, f"{prefix}_conv", x, channels, kernel, strides), channels, model, gamma)


class _ResNet(NamedTuple):
    """What tells one residual network for ImageNet from another."""

    block: Callable[[Builder, str, str, int, int, ImageModel, bool], str]
    channels: int  # that the blocks of the first stack give; doubled in each following one
    blocks: Tuple[int, ...]  # in each stack


RESNETS = {
    "resnet18": _ResNet(_basic, 64, (2, 2, 2, 2)),
    "resnet34": _ResNet(_basic, 64, (3, 4, 6, 3)),
    "resnet50": _ResNet(_bottleneck, 256, (3, 4, 6, 3)),
}


def cifar_resnet(settings: ImageSettings) -> Network:
    """A convolution, three stacks of basic blocks, an average and a dense layer, for any size of image."""
    model, net = settings.model, Builder()
    x = _cifar_layer(net, "conv1", pixels(net, settings), _CIFAR_CHANNELS[0], model)
    x = net.activation("conv1_relu", x, "relu")
    for stack, channels in enumerate(_CIFAR_CHANNELS, start=2):
        for number in range(1, CIFAR_BLOCKS[model.name] + 1):
            x = _cifar_block(net, f"conv{stack}_block{number}", x, channels, model, halves=number == 1 and stack > 2)
    x = net.global_average_pool("avg_pool", x)
    net.dense("fc_layer", x, settings.data.classes)
    return net.network(model.name)


def _cifar_block(net: Builder, name: str, x: str, channels: int, model: ImageModel, halves: bool) -> str:
    """Two convolutions of 3 x 3; the shortcut has no weights, even where the image halves and the channels double."""
    shortcut = net.downsample(f"{name}_shortcut", x) if halves else x
    x = _cifar_layer(net, f"{name}_layer1", x, channels, model, halves)
    x = net.activation(f"{name}_layer1_relu", x, "relu")
    x = _cifar_layer(net, f"{name}_layer2", x, channels, model)
    x = net.add(f"{name}_add", shortcut, x)
    return net.activation(f"{name}_post_addition_relu", x, "relu")


def _cifar_layer(net: Builder, prefix: str, x: str, channels: int, model: ImageModel, halves: bool = False) -> str:
    """A convolution and its norm; the name of one that halves the image says so."""
    x = conv(net, f"{prefix}_conv_ds" if halves else f"{prefix}_conv", x, channels, 3, strides=2 if halves else 1)
    return norm(net, prefix, x, channels, model)
