"""What the image networks share: the input of pixels, and the norms between layers."""

from __future__ import annotations

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.images import ImageModel, ImageSettings
from ipulaunch.topology.networks.builder import Builder

_EPSILON = 1.001e-5  # of Keras applications, and of all norms of the published networks


def pixels(net: Builder, settings: ImageSettings) -> str:
    """The input, normalised here unless the host does it."""
    data = settings.data
    image = net.input("image", settings.shape, "uint8" if data.sends_bytes else "float32")
    return image if data.host_preprocess else net.normalise("normalise", image, data.mean, data.std)


def conv(net: Builder, name: str, x: str, channels: int, kernel: int, strides: int = 1) -> str:
    """A convolution of the residual networks; the norm after it makes a bias useless."""
    return net.conv(name, x, channels, kernel, strides, bias=False, initializer="variance_scaling")


def norm(net: Builder, prefix: str, x: str, channels: int, model: ImageModel, gamma: str = "ones") -> str:
    """The chosen norm for this many channels: `..._bn` over the batch, `..._gn` over groups of channels."""
    if model.norm_layer == "batch_norm":
        return net.batch_norm(f"{prefix}_bn", x, model.norm_momentum, _EPSILON, gamma)
    size = model.norm_channels_per_group
    groups = min(model.norm_groups, channels) if size is None else max(1, channels // size)
    if channels % groups or (size is not None and size < channels and channels % size):
        chosen = f"{groups} groups do" if size is None else f"groups of {size} do"
        setting = "norm_groups=32" if size is None else "norm_channels_per_group=16"
        raise SettingsError(
            f"{prefix}_gn of {model.name} has {channels} channels, which {chosen} not divide",
            hint=f"use model.{setting} or another power of 2",
        )
    return net.group_norm(f"{prefix}_gn", x, groups, _EPSILON, gamma)
