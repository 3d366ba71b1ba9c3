"""Calls into the SDK: arguments checked against its table, and a line of JSON for each."""

from __future__ import annotations

import enum
import inspect
import json
import os
from typing import Any, Callable, Mapping, Optional


class Calls:
    """The record of one process; the file is named by IPU_STANDIN_CALLS, and may be shared by instances."""

    def __init__(self, environ: Mapping[str, str], instance: Callable[[], int]) -> None:
        self.environ, self.instance = environ, instance

    def record(self, name: str, arguments: Mapping[str, Any]) -> None:
        path = self.environ.get("IPU_STANDIN_CALLS")
        if path:
            shown = {key: _shown(value) for key, value in arguments.items()}
            line = json.dumps({"instance": self.instance(), "call": name, "arguments": shown}) + "\n"
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(file, line.encode())  # one write: lines of several instances do not mix
            os.close(file)

    def checked(self, name: str, signature: inspect.Signature, behaviour: Optional[Callable[..., Any]]) -> Any:
        """A function that refuses what the signature does not take, as Python itself would."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name}{signature}: {error}") from None
            self.record(name, bound.arguments)
            if behaviour is None:
                raise NotImplementedError(f"the stand-in knows {name} but does not act it out")
            bound.apply_defaults()
            return behaviour(*bound.args, **bound.kwargs)

        call.__name__ = name.rsplit(".", 1)[-1]
        return call


def _shown(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if hasattr(type(value), "shown"):
        return _shown(value.shown)
    kind = type(value)  # asked in place of the value: an IPUConfig raises for names it does not have
    if hasattr(kind, "dtype") and hasattr(kind, "shape"):
        return f"{value.dtype.name}{list(value.shape)}"
    return "Dataset" if hasattr(kind, "element_spec") else kind.__name__
