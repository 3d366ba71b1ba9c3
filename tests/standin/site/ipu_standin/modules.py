"""The SDK's modules, made from the table when they are imported."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any, Mapping, Optional

_ROOTS = ("popdist", "tensorflow.python.ipu", "keras.ipu")
_IPU = "tensorflow.python.ipu"
_NOT_IMPORTED_WITH_IPU = tuple(f"{_IPU}.{name}" for name in ("distributed", "horovod", "gradient_accumulation"))


def _is_of_the_sdk(name: str) -> bool:
    return name.startswith(tuple(root + "." for root in _ROOTS)) or name in _ROOTS


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of one SDK. Nothing heavy is imported before one of them is."""

    def __init__(self, version: str, environ: Mapping[str, str]) -> None:
        self.version, self.environ = version, environ
        self._sdk: Any = None

    @property
    def sdk(self) -> Any:
        if self._sdk is None:
            from ipu_standin.sdk import Sdk

            self._sdk = Sdk(self.version, self.environ)
        return self._sdk

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if _is_of_the_sdk(name) and name in self.sdk.table.modules:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        table = self.sdk.table
        for name in table.names:
            home, _, last = name.rpartition(".")
            if home == module.__name__:
                setattr(module, last, self._make(name))
        if module.__name__ == _IPU:
            from ipu_standin import models

            models.install(self.sdk)
            for name in sorted(table.modules):
                if name.startswith(_IPU + ".") and not name.startswith(_NOT_IMPORTED_WITH_IPU):
                    inner = importlib.import_module(name)
                    if name.startswith((f"{_IPU}.ops.", f"{_IPU}.optimizers.")):
                        setattr(module, name.rpartition(".")[2], inner)

    def _make(self, name: str) -> Any:
        from ipu_standin.behaviours import behaviours
        from ipu_standin.sdk import make_config

        sdk = self.sdk
        if name in sdk.enums:
            return sdk.enums[name]
        if name in sdk.table.values:
            return sdk.table.values[name]
        if name.endswith(".IPUConfig"):
            return make_config(sdk)
        if name.endswith(".ALSOptimizer"):
            from ipu_standin.loss_scaling import make_als

            return make_als(sdk)
        if name.endswith(("IPUStrategy", "IPUStrategyV1", "PopDistStrategy")):
            from ipu_standin.strategies import make_strategy

            return make_strategy(sdk, name)
        return sdk.calls.checked(name, sdk.table.signature_of(name), behaviours(sdk).get(name))


def install(version: str, environ: Mapping[str, str] = os.environ) -> Finder:
    """Stand in for this SDK from now on."""
    finder = Finder(version, environ)
    sys.meta_path.insert(0, finder)
    return finder


def uninstall(finder: Finder) -> None:
    """Leave the process as it was."""
    sys.meta_path.remove(finder)
    if _IPU in sys.modules:
        from ipu_standin import models

        models.uninstall()
    for name in [name for name in sys.modules if _is_of_the_sdk(name)]:
        parent, _, last = name.rpartition(".")
        if parent in sys.modules and last in vars(sys.modules[parent]):
            delattr(sys.modules[parent], last)
        del sys.modules[name]
