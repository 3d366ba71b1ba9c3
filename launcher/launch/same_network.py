"""Whether an earlier run has trained the network that settings ask for, and which settings make the difference."""

from __future__ import annotations

import contextlib
from typing import List

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.schema import Leaf, leaves, plain_value, value_of, with_value
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.networks import computed_by


def is_same(settings: WorkloadSettings, earlier: WorkloadSettings) -> bool:
    try:
        return computed_by(settings) == computed_by(earlier)
    except SettingsError:  # they describe no network; the worker that builds it says so
        return True


def require_same(settings: WorkloadSettings, earlier: WorkloadSettings, where: str) -> None:
    """Refuse to take the weights of an earlier run into another network."""
    if is_same(settings, earlier):
        return
    differing = _differing(settings, earlier)
    theirs, ours = (
        " and ".join(f"{leaf.key} {_shown(value_of(one, leaf.key))}" for leaf in differing)
        for one in (earlier, settings)
    )
    raise SettingsError(
        f"{where} was trained with {theirs or 'another network'}, and this job has {ours or 'its own'}",
        hint=f"add {' '.join(_option(leaf, earlier) for leaf in differing)}, as in that run" if differing else "",
    )


def _differing(settings: WorkloadSettings, earlier: WorkloadSettings) -> List[Leaf]:
    """The settings that would each make another network, if they were as in the earlier run."""
    found, ours = [], computed_by(settings)
    for leaf in leaves(type(settings)):
        value = value_of(earlier, leaf.key)
        if value != value_of(settings, leaf.key):
            with contextlib.suppress(SettingsError):  # it goes only with another one
                if computed_by(with_value(settings, leaf.key, value)) == ours:
                    continue
            if leaf.key.startswith(("model.", "data.")):
                found.append(leaf)
    return found


def _option(leaf: Leaf, earlier: WorkloadSettings) -> str:
    value = _shown(value_of(earlier, leaf.key))
    flag = leaf.about.flag
    return f"{flag} {value}" if flag and "/" not in flag else f"--set {leaf.key}={value}"


def _shown(value: object) -> str:
    plain = plain_value(value)
    return "null" if plain is None else str(plain)
