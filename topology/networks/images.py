"""What the image networks share: the input of pixels, and the norms between layers."""

from __future__ import annotations

import math
from typing import List

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.images import ImageModel, ImageSettings
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.network import shapes
from ipulaunch.topology.networks.selection import network_of

_EPSILON = 1.001e-5  # of Keras applications, and of all norms of the published networks
# Over two values, as over any that nearly agree, a norm makes gradients up to 1 / sqrt(epsilon) = 316 times larger, and
# so does the next: those of ResNet-50 come close to 65504, where 16 bits end. Over eight they are 100 times smaller.
_ENOUGH_VALUES = 4


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


def few_values(settings: WorkloadSettings) -> List[str]:
    """A warning if batch norms train on too few values; the settings themselves warn about a single sample."""
    samples = settings.training.micro_batch_size * settings.device.distributed_norm_replicas
    if not settings.training.training or samples == 1:
        return []
    network = network_of(settings)
    found = shapes(network)
    sizes = (math.prod(found[layer.name][:-1]) for layer in network.layers if layer.kind == "batch_norm")
    values = samples * min(sizes, default=_ENOUGH_VALUES)
    if values >= _ENOUGH_VALUES:
        return []
    return [
        f"batch statistics of {values} values in the last norms of {network.name}: gradients get very large, in 16 bits"
        " too large to be finite; raise --micro-batch-size or --side, or use --norm-layer group_norm"
    ]
