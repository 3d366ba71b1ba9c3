"""The distribution strategies: scopes that mark the models made inside them as those of the IPU."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_standin.sdk import Sdk


class IpuStrategyBase(tf.distribute.OneDeviceStrategy):
    """What models know their strategy by."""

    replicas_in_sync: int  # Keras divides the loss by it; gradients are then summed over all replicas
    has_extensions: bool


def make_strategy(sdk: Sdk, full_name: str) -> Any:
    """The strategy class of this name."""
    signature, is_popdist = sdk.table.classes[full_name], full_name.endswith("PopDistStrategy")

    class Strategy(IpuStrategyBase):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            def check(**arguments: Any) -> None:
                if is_popdist and sdk.table.sdk == "2.6":
                    sdk.require_joined("PopDistStrategy()")
                if is_popdist:
                    sdk.join()
                self.has_extensions = arguments["enable_keras_extensions"]

            by_name = signature.replace(
                parameters=[p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]
            )
            bound = signature.bind(*args, **kwargs)
            super().__init__("/cpu:0")
            sdk.calls.checked(full_name.rsplit(".", 1)[-1], by_name, check)(**bound.arguments)
            self.replicas_in_sync = sdk.replicas if is_popdist else 1

    Strategy.__name__ = full_name.rsplit(".", 1)[-1]
    return Strategy
