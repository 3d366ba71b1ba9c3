"""Settings that only later SDKs can fulfil."""

from __future__ import annotations

from typing import Callable, NamedTuple, Tuple

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.estimators import KERAS
from ipulaunch.configs.settings.schema import value_of
from ipulaunch.configs.settings.workload import WorkloadSettings

_Sdk = Tuple[int, int]


class Feature(NamedTuple):
    """Something of the SDK's Keras that a setting needs."""

    setting: str
    first: _Sdk  # the first that has it
    why: str
    hint: str

    def missing(self, where: str = "") -> SettingsError:
        """The error of a planner that knows the SDK's version, or of a worker that did not find the feature."""
        return SettingsError(f"{self.why}{where}", hint=f"{self.hint}, or enable a later SDK")


AUTOMATIC_SCALING = Feature(
    "optimizer.auto_loss_scaling",
    (3, 0),
    "automatic loss scaling on IPUs needs SDK 3.0 or later: the optimizer that SDK 2.6 has for it is marked there as"
    " not to be used",
    "use a fixed --loss-scaling, for example 128",
)
METRIC_REDUCTION = Feature(
    "device.accelerator_side_reduction",
    (3, 1),
    "--accelerator-side-reduction needs an option of Keras that SDKs before 3.1 do not have",
    "leave it out, as losses and metrics are those of all replicas without it as well",
)


def refuse_before(settings: WorkloadSettings, sdk: Callable[[], _Sdk]) -> None:
    """Raise for the first setting that the SDK is too old for; looks up its version only if that matters."""
    for feature in (AUTOMATIC_SCALING, METRIC_REDUCTION):
        if settings.api != KERAS or not value_of(settings, feature.setting):
            continue
        major, minor = sdk()
        if (major, minor) < feature.first:
            raise feature.missing(f" (this is SDK {major}.{minor})")
