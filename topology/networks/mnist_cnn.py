"""A small convolution network for MNIST."""

from __future__ import annotations

from ipulaunch.configs.settings.images import ImageSettings
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import pixels
from ipulaunch.topology.networks.network import Network


def mnist_cnn(settings: ImageSettings) -> Network:
    """Two convolutions, each with a pool, and two dense layers."""
    net, given = Builder(), settings.model.dropout
    light, heavy = (0.25, 0.5) if given is None else (given, given)
    x = pixels(net, settings)
    for block, channels in enumerate((32, 64), start=1):
        x = net.conv(f"conv{block}", x, channels, 3, padding="valid")
        x = net.activation(f"conv{block}_relu", x, "relu")
        x = net.pool(f"pool{block}", x, "max", 2)
    x = net.flatten("flatten", x)
    x = net.dropout("flatten_dropout", x, light)
    x = net.dense("fc1", x, 128)
    x = net.activation("fc1_relu", x, "relu")
    x = net.dropout("fc1_dropout", x, heavy)
    net.dense("predictions", x, settings.data.classes)
    return net.network("mnist_cnn")
