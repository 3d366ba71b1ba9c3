"""The small residual networks for CIFAR: three stacks of blocks at the image's own, half and quarter size."""

from __future__ import annotations

from ipulaunch.configs.settings.images import ImageModel, ImageSettings
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import conv, norm, pixels
from ipulaunch.topology.networks.network import Network

_CHANNELS = (16, 32, 64)
# Blocks in each stack: 6 n + 2 layers have weights.
BLOCKS = {f"cifar_resnet{6 * blocks + 2}": blocks for blocks in (1, 3, 5, 7, 9)}


def cifar_resnet(settings: ImageSettings) -> Network:
    """A convolution, three stacks of basic blocks, an average and a dense layer, for any size of image."""
    model, net = settings.model, Builder()
    x = _layer(net, "conv1", pixels(net, settings), _CHANNELS[0], model)
    x = net.activation("conv1_relu", x, "relu")
    for stack, channels in enumerate(_CHANNELS, start=2):
        for number in range(1, BLOCKS[model.name] + 1):
            x = _block(net, f"conv{stack}_block{number}", x, channels, model, halves=number == 1 and stack > 2)
    x = net.global_average_pool("avg_pool", x)
    net.dense("fc_layer", x, settings.data.classes)
    return net.network(model.name)


def _block(net: Builder, name: str, x: str, channels: int, model: ImageModel, halves: bool) -> str:
    """Two convolutions of 3 x 3; the shortcut has no weights, even where the image halves and the channels double."""
    shortcut = net.downsample(f"{name}_shortcut", x) if halves else x
    x = _layer(net, f"{name}_layer1", x, channels, model, halves)
    x = net.activation(f"{name}_layer1_relu", x, "relu")
    x = _layer(net, f"{name}_layer2", x, channels, model)
    x = net.add(f"{name}_add", shortcut, x)
    return net.activation(f"{name}_post_addition_relu", x, "relu")


def _layer(net: Builder, prefix: str, x: str, channels: int, model: ImageModel, halves: bool = False) -> str:
    """A convolution and its norm; the name of one that halves the image says so."""
    x = conv(net, f"{prefix}_conv_ds" if halves else f"{prefix}_conv", x, channels, 3, strides=2 if halves else 1)
    return norm(net, prefix, x, channels, model)
