"""The small convolution network that Keras trained on CIFAR-10."""

from __future__ import annotations

from ipulaunch.configs.settings.images import ImageSettings
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import pixels
from ipulaunch.topology.networks.network import Network


def cifar_cnn(settings: ImageSettings) -> Network:
    """Two blocks of two convolutions, of 32 and 64 channels, and two dense layers."""
    net, given = Builder(), settings.model.dropout
    light, heavy = (0.25, 0.5) if given is None else (given, given)
    x = pixels(net, settings)
    for block, channels in enumerate((32, 64), start=1):
        for number, padding in ((2 * block - 1, "same"), (2 * block, "valid")):
            x = net.conv(f"conv{number}", x, channels, 3, padding=padding)
            x = net.activation(f"conv{number}_relu", x, "relu")
        x = net.pool(f"pool{block}", x, "max", 2)
        x = net.dropout(f"pool{block}_dropout", x, light)
    x = net.flatten("flatten", x)
    x = net.dense("fc1", x, 512)
    x = net.activation("fc1_relu", x, "relu")
    x = net.dropout("fc1_dropout", x, heavy)
    net.dense("predictions", x, settings.data.classes)
    return net.network("cifar_cnn")
