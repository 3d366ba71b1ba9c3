"""The small residual networks for CIFAR: three stacks of blocks at the image's own, half and quarter size."""

from __future__ import annotations

from ipulaunch.configs.images import ImageModel, ImageSettings
from ipulaunch.topology.network import Network
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import norm, pixels

_EPSILON = 1e-3
_CHANNELS = (16, 32, 64)
# Blocks in each stack: 6 n + 2 layers have weights, beside the shortcuts.
BLOCKS = {f"cifar_resnet{6 * blocks + 2}": blocks for blocks in (1, 3, 5, 7, 9)}


def cifar_resnet(settings: ImageSettings) -> Network:
    """A convolution, three stacks of basic blocks, an average and a dense layer, for any size of image."""
    model, net = settings.model, Builder()
    x = _conv(net, "conv1", x=pixels(net, settings), channels=_CHANNELS[0], kernel=3)
    x = norm(net, "conv1", x, _CHANNELS[0], model, _EPSILON)
    x = net.activation("conv1_relu", x, "relu")
    read = _CHANNELS[0]
    for stack, channels in enumerate(_CHANNELS, start=2):
        for number in range(1, BLOCKS[model.name] + 1):
            x = _block(net, f"conv{stack}_block{number}", x, read, channels, model)
            read = channels
    x = net.global_average_pool("avg_pool", x)
    net.dense("fc_layer", x, settings.data.classes)
    return net.network(model.name)


def _block(net: Builder, name: str, x: str, read: int, channels: int, model: ImageModel) -> str:
    """Two convolutions of 3 x 3; where channels double, the image halves and the shortcut is a convolution."""
    strides = 1 if read == channels else 2
    shortcut = x if read == channels else _conv(net, f"{name}_shortcut_conv", x, channels, 1, strides)
    x = _conv(net, f"{name}_layer1_conv", x, channels, 3, strides)
    x = norm(net, f"{name}_layer1", x, channels, model, _EPSILON)
    x = net.activation(f"{name}_layer1_relu", x, "relu")
    x = _conv(net, f"{name}_layer2_conv", x, channels, 3)
    x = norm(net, f"{name}_layer2", x, channels, model, _EPSILON)
    x = net.add(f"{name}_add", shortcut, x)
    return net.activation(f"{name}_post_addition_relu", x, "relu")


def _conv(net: Builder, name: str, x: str, channels: int, kernel: int, strides: int = 1) -> str:
    return net.conv(name, x, channels, kernel, strides, initializer="he_normal")
