"""The small convolution networks: for CIFAR-10 and MNIST, and the published application's, to try a system with."""

from __future__ import annotations

from typing import Tuple

from ipulaunch.configs.settings.images import ImageSettings
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import norm, pixels
from ipulaunch.topology.networks.network import Network


def cifar_cnn(settings: ImageSettings) -> Network:
    """What Keras trained on CIFAR-10: two blocks of two convolutions, of 32 and 64 channels, and two dense layers."""
    net = Builder()
    light, heavy = _dropout_rates(settings)
    x = pixels(net, settings)
    for block, channels in enumerate((32, 64), start=1):
        for number, padding in ((2 * block - 1, "same"), (2 * block, "valid")):
            x = net.conv(f"conv{number}", x, channels, 3, padding=padding)
            x = net.activation(f"conv{number}_relu", x, "relu")
        x = net.pool(f"pool{block}", x, "max", 2)
        x = net.dropout(f"pool{block}_dropout", x, light)
    x = net.flatten("flatten", x)
    _predict(net, x, 512, heavy, settings)
    return net.network("cifar_cnn")


def mnist_cnn(settings: ImageSettings) -> Network:
    """Two convolutions, each with a pool, and two dense layers."""
    net = Builder()
    light, heavy = _dropout_rates(settings)
    x = pixels(net, settings)
    for block, channels in enumerate((32, 64), start=1):
        x = net.conv(f"conv{block}", x, channels, 3, padding="valid")
        x = net.activation(f"conv{block}_relu", x, "relu")
        x = net.pool(f"pool{block}", x, "max", 2)
    x = net.flatten("flatten", x)
    x = net.dropout("flatten_dropout", x, light)
    _predict(net, x, 128, heavy, settings)
    return net.network("mnist_cnn")


def _dropout_rates(settings: ImageSettings) -> Tuple[float, float]:
    """The rates before and inside the dense layers; one rate that the user gives holds for both."""
    given = settings.model.dropout
    return (0.25, 0.5) if given is None else (given, given)


def _predict(net: Builder, x: str, units: int, dropout: float, settings: ImageSettings) -> None:
    """Two dense layers; the second has the classes."""
    x = net.dense("fc1", x, units)
    x = net.activation("fc1_relu", x, "relu")
    x = net.dropout("fc1_dropout", x, dropout)
    net.dense("predictions", x, settings.data.classes)


def toy_model(settings: ImageSettings) -> Network:
    """Two convolutions, each with a wide pool, and a dense layer; `toy_model_bn` normalises behind each pool."""
    net, model = Builder(), settings.model
    x = pixels(net, settings)
    for number, (channels, kernel) in enumerate(((4, 3), (8, 1))):
        x = net.conv(f"conv2d_{number}", x, channels, kernel, padding="valid")
        x = net.activation(f"conv2d_{number}_relu", x, "relu")
        x = net.pool("max_pooling2d_1" if number else "max_pooling2d", x, "max", 5)
        x = norm(net, f"toy_{number}", x, channels, model) if model.name == "toy_model_bn" else x
    x = net.flatten("flatten", x)
    net.dense("predictions", x, settings.data.classes)
    return net.network(model.name)
