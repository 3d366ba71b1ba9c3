"""IPUConfig: attributes of the declared names and exact types, and nothing else."""

from __future__ import annotations

import ast
import typing
from typing import Any, Callable, Dict, List, Mapping

Setter = Callable[[str, Any], None]


class Category:
    """A group of attributes, such as config.io_tiles."""

    def __init__(self, declared: Mapping[str, str], enums: Mapping[str, Any], prefix: str, recorded: Setter) -> None:
        values: Dict[str, Any] = {}
        for name, text in declared.items():
            if name.startswith(prefix):
                head, *rest = name[len(prefix) :].split(".")
                if rest and head not in values:
                    values[head] = Category(declared, enums, f"{prefix}{head}.", recorded)
                elif not rest:
                    values[head] = _default(text, enums)
        self.__dict__.update(_declared=declared, _enums=enums, _prefix=prefix, _recorded=recorded, _values=values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._values:
            raise ValueError(f"IPUConfig has no attribute {self._prefix}{name}")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(self, name), Category):
            raise Exception(f"{self._prefix}{name} is a category of IPUConfig, not an attribute")
        full = self._prefix + name
        wanted = self._declared[full].split(" = ")[0]
        if not _fits(value, wanted, self._enums):
            raise TypeError(f"IPUConfig.{full} is of type {wanted}, not {type(value).__name__}")
        self._recorded(full, value)
        self._values[name] = value


def number_of_ipus(value: Any) -> int:
    """How many IPUs auto_select_ipus asks for."""
    counts: List[int] = [value] if isinstance(value, int) else list(value)
    return sum(counts)


def _default(text: str, enums: Mapping[str, Any]) -> Any:
    kind, default = text.split(" = ")
    return enums[kind][default.rsplit(".", 1)[-1]] if kind in enums else ast.literal_eval(default)


def _fits(value: Any, wanted: str, enums: Mapping[str, Any]) -> bool:
    if wanted in enums:
        return isinstance(value, enums[wanted])
    if wanted.startswith("Union"):
        return type(value) is int or (isinstance(value, (list, tuple)) and all(type(item) is int for item in value))
    plain: Mapping[str, typing.Type[Any]] = {"bool": bool, "int": int, "str": str, "float": float, "dict": dict}
    return type(value) is plain[wanted]
