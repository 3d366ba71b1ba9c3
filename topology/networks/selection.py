"""Which network settings ask for."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Tuple, cast

from ipulaunch.configs.errors import SettingsError
from ipulaunch.topology.networks.network import Network, shapes

if TYPE_CHECKING:
    from ipulaunch.configs.settings.images import ImageModel
    from ipulaunch.configs.settings.workload import WorkloadSettings

# The module and the function that make each network, loaded on demand: a plan has one of them.
_MAKERS: Dict[str, Tuple[str, str]] = {
    "cosmoflow": ("cosmoflow", "cosmoflow"),
    "cosmoflow_v1": ("cosmoflow", "cosmoflow_v1"),
    **dict.fromkeys(("resnet18", "resnet34", "resnet50"), ("resnet", "resnet")),
    **dict.fromkeys((f"cifar_resnet{depth}" for depth in (8, 20, 32, 44, 56)), ("resnet", "cifar_resnet")),
    "cifar_cnn": ("small_networks", "cifar_cnn"),
    "mnist_cnn": ("small_networks", "mnist_cnn"),
    **dict.fromkeys(("toy_model", "toy_model_bn"), ("small_networks", "toy_model")),
}

_ASIDE = ("dtype", "gamma", "initializer", "momentum", "rate")  # how inputs arrive, and what only training knows


def network_of(settings: WorkloadSettings) -> Network:
    """The network of these settings; refuses one without any output left, and settings that it does not use."""
    module, name = _MAKERS[settings.model.name]
    make: Callable[[Any], Network] = getattr(importlib.import_module(f"ipulaunch.topology.networks.{module}"), name)
    network = make(settings)
    if module != "cosmoflow":
        _check_use(network, cast("ImageModel", settings.model))
    shapes(network)
    return network


def computed_by(settings: WorkloadSettings) -> List[Any]:
    """The network's function of its weights and of samples as stored, no matter where they are normalised."""
    data = dataclasses.replace(settings.data, host_preprocess=False)
    network = network_of(dataclasses.replace(settings, data=data))
    return [
        (*layer[:3], sorted((name, value) for name, value in layer.options.items() if name not in _ASIDE))
        for layer in network.layers
    ]


def _check_use(network: Network, model: ImageModel) -> None:
    kinds = {layer.kind for layer in network.layers}
    if model.dropout is not None and "dropout" not in kinds:
        raise SettingsError(
            f"model.dropout is {model.dropout:g}, and {network.name} drops nothing",
            hint="use --set model.dropout=null, or --model cifar_cnn or mnist_cnn",
        )
    if model.norm_layer != "batch_norm" and model.norm_layer not in kinds:
        raise SettingsError(
            f"--norm-layer is {model.norm_layer}, and {network.name} normalises nothing between its layers",
            hint="leave --norm-layer out, or use one of the ResNets",
        )
