"""Options of Graphcore's published CNN application that hold several of our settings in one value."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ipulaunch.configs.errors import SettingsError, near_miss
from ipulaunch.configs.settings.tree import Tree, assign, flat, parse_yaml

# What the keys inside a value mean here. Those of the schedule need arithmetic as well: see _schedule().
_KEYS: Mapping[str, Mapping[str, str]] = {
    "--norm-layer": {
        "name": "model.norm_layer",
        "momentum": "model.norm_momentum",
        "num_groups": "model.norm_groups",
        "channels_per_group": "model.norm_channels_per_group",
    },
    "--optimizer-params": {
        "momentum": "optimizer.momentum",
        "weight_decay": "optimizer.weight_decay",
        "eeta": "optimizer.eeta",
        "epsilon": "optimizer.epsilon",
        "base_decay_exponent": "optimizer.rho_exponent",
    },
    "--lr-warmup-params": {"warmup_mode": "schedule.warmup_mode", "warmup_epochs": "schedule.warmup_epochs"},
    "--lr-schedule-params": {
        "initial_learning_rate": "optimizer.learning_rate",
        "epochs_to_total_decay": "schedule.epochs_to_total_decay",
        "end_learning_rate_ratio": "schedule.end_learning_rate_ratio",
        "power": "schedule.power",
        "boundaries": "schedule.boundaries",
        "values": "schedule.factors",
    },
}
# The options that hold nothing else; --norm-layer also takes the name of a layer alone.
MAPPINGS = ("--optimizer-params", "--lr-schedule-params", "--lr-warmup-params")


def holds_several(option: str, value: object) -> bool:
    """Whether the value of an option is written as `{key: value}`, and may be."""
    return option in _KEYS and isinstance(value, str) and value.lstrip().startswith("{")


def settings_in(option: str, text: str) -> List[Tree]:
    """The settings that one value of such an option holds, each as a tree; `{}` holds none."""
    keys, given = _KEYS[option], flat(parse_yaml(text, option))
    for key in given:
        if key not in keys:
            raise SettingsError(f"{option}: {key} is not one of its keys", hint=near_miss(key, list(keys)))
    if option == "--lr-schedule-params":
        return _schedule(option, {key: value.value for key, value in given.items()})
    return [assign(keys[key], value.value, option, value.text) for key, value in given.items()]


def _schedule(option: str, values: Dict[str, Any]) -> List[Tree]:
    """The schedule: an initial rate is one per sample; stepped values are rates as they are, ours are fractions."""
    if "values" in values:
        rates = values.pop("values")
        is_list = isinstance(rates, list) and len(rates) > 0
        if not is_list or not all(isinstance(rate, (int, float)) and rate > 0 for rate in rates):
            raise SettingsError(
                f"{option}: values is {rates!r}, expected learning rates above 0",
                hint="one more than there are boundaries: {boundaries: [30, 60], values: [0.1, 0.01, 0.001]}",
            )
        if "initial_learning_rate" in values:
            raise SettingsError(
                f"{option}: initial_learning_rate and values are both given", hint="the first of the values is the rate"
            )
        stepped = {"optimizer.learning_rate": rates[0], "optimizer.lr_scaling": "none"}
        stepped["schedule.factors"] = [rate / rates[0] for rate in rates[1:]]
        found = [assign(key, value, option) for key, value in stepped.items()]
    else:
        found = [assign("optimizer.lr_scaling", "batch", option)] if "initial_learning_rate" in values else []
    return [*found, *(assign(_KEYS[option][key], value, option) for key, value in values.items())]
