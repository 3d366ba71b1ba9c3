"""The CosmoFlow networks: convolution blocks, two dense layers, and outputs that reach a little beyond the targets."""

from __future__ import annotations

from ipulaunch.configs.settings.cosmoflow import CosmoflowSettings
from ipulaunch.topology.networks.builder import Builder
from ipulaunch.topology.networks.network import Network

# tanh never reaches 1, and targets lie in [-1, 1]: the published network scales its output up.
_OUTPUT_SCALE = 1.2
_POOLS = {"MaxPool3D": "max", "AveragePooling3D": "average"}


def cosmoflow(settings: CosmoflowSettings) -> Network:
    """The published network: channels double from block to block, dropout follows the dense layers."""
    model, net = settings.model, Builder()
    x = _volume(net, settings)
    for block in range(1, model.n_conv_layers + 1):
        x = _block(net, block, x, settings, model.conv_size * 2 ** (block - 1), "same")
    x = net.flatten("flatten", x)
    for name, units in (("fc1", model.fc1_size), ("fc2", model.fc2_size)):
        x = net.dense(name, x, units)
        x = net.activation(f"{name}_activation", x, model.hidden_activation)
        x = net.dropout(f"{name}_dropout", x, model.dropout)
    _targets(net, x, settings)
    return net.network("cosmoflow")


def cosmoflow_v1(settings: CosmoflowSettings) -> Network:
    """Its first version: equal channels in all blocks, no padding, dropout before every dense layer."""
    model, net = settings.model, Builder()
    x = _volume(net, settings)
    for block in range(1, model.n_conv_layers + 1):
        x = _block(net, block, x, settings, model.conv_size, "valid")
    x = net.flatten("flatten", x)
    for name, units in (("fc1", model.fc1_size), ("fc2", model.fc2_size)):
        x = net.dropout(f"{name}_dropout", x, model.dropout)
        x = net.dense(name, x, units)
        x = net.activation(f"{name}_activation", x, model.hidden_activation)
    x = net.dropout("targets_dropout", x, model.dropout)
    _targets(net, x, settings)
    return net.network("cosmoflow_v1")


def _volume(net: Builder, settings: CosmoflowSettings) -> str:
    if settings.data.host_preprocess:
        return net.input("density", settings.shape, "float32")
    return net.density("density", net.input("counts", settings.shape, "int16"), settings.data.normalise)


def _block(net: Builder, number: int, x: str, settings: CosmoflowSettings, channels: int, padding: str) -> str:
    model, name = settings.model, f"conv{number}"
    x = net.conv(name, x, channels, model.kernel_size, padding=padding)
    x = net.activation(f"{name}_activation", x, model.hidden_activation)
    return net.pool(f"{name}_pool", x, _POOLS[model.pooling_type], 2)


def _targets(net: Builder, x: str, settings: CosmoflowSettings) -> None:
    x = net.dense("targets", x, settings.data.targets, activation="tanh")
    net.scale("stretch", x, _OUTPUT_SCALE)
