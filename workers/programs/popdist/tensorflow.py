"""PopDist's functions for TensorFlow: all of them need IPUs."""

from __future__ import annotations

from typing import Any, NoReturn

from popdist import _NEEDS_IPUS


def set_ipu_config(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused: there is no IPU to configure."""
    raise RuntimeError(f"popdist.tensorflow.set_ipu_config() {_NEEDS_IPUS}")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"popdist.tensorflow.{name} {_NEEDS_IPUS}")
