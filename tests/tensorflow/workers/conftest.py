"""Networks of a few layers, for tests of what happens around one: TensorFlow takes seconds to trace a real one."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import pytest

from ipulaunch.configs.settings.images import ImageSettings
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.images import conv, norm, pixels
from ipulaunch.topology.networks.network import Network


def dense_network(settings: ImageSettings) -> Network:
    """One layer of weights behind a dropout."""
    net = Builder()
    x = net.flatten("flatten", pixels(net, settings))
    if settings.model.dropout:
        x = net.dropout("flatten_dropout", x, settings.model.dropout)
    net.dense("predictions", x, settings.data.classes)
    return net.network("dense")


def residual_network(settings: ImageSettings) -> Network:
    """One residual block, whose last layer is called as in the CIFAR ResNets, with the norm that the settings name."""
    net, model = Builder(), settings.model
    x = conv(net, "conv1_conv", pixels(net, settings), 4, 3, strides=2)
    first = net.activation("conv1_relu", norm(net, "conv1", x, 4, model), "relu")
    x = norm(net, "conv3_block1", conv(net, "conv3_block1_conv", first, 4, 3), 4, model)
    x = net.activation("conv3_block1_post_addition_relu", net.add("conv3_block1_add", x, first), "relu")
    net.dense("predictions", net.global_average_pool("mean", x), settings.data.classes)
    return net.network("residual")


@contextlib.contextmanager
def _used(network: Callable[[Any], Network]) -> Iterator[None]:
    def choose(settings: Any) -> Network:
        return network(settings) if isinstance(settings, ImageSettings) else network_of(settings)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("state.training_state", "backends.cpu.replicated", "backends.ipu.device", "backends.ipu.model"):
            patch.setattr(f"ipulaunch.workers.{module}.network_of", choose)
        yield


@pytest.fixture(scope="module")
def one_dense_layer() -> Iterator[None]:
    """Whatever images are trained on, the network is `dense_network`."""
    with _used(dense_network):
        yield


@pytest.fixture()
def one_residual_block() -> Iterator[Callable[[Any], Network]]:
    """Whatever images are trained on, the network is `residual_network`."""
    with _used(residual_network):
        yield residual_network
