"""The published application's smallest networks, to try a system with."""

from __future__ import annotations

from ipulaunch.configs.settings.images import ImageSettings
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import norm, pixels
from ipulaunch.topology.networks.network import Network


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
