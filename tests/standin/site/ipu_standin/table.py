"""What each SDK has, from signatures.json."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any, Dict, Set

SDKS = ("2.6", "3.0", "3.1", "3.4")
_FILE = Path(__file__).resolve().parents[2] / "signatures.json"


class Table:
    """The entries of one SDK, each under its full name."""

    def __init__(self, sdk: str) -> None:
        if sdk not in SDKS:
            raise ValueError(f"no table for SDK {sdk!r}, only for {', '.join(SDKS)}")
        data = json.loads(_FILE.read_text(encoding="utf-8"))

        def valid(section: str) -> Dict[str, Any]:
            found = {name: _of(sdk, entry) for name, entry in data[section].items()}
            return {name: value for name, value in found.items() if value is not None}

        self.sdk = sdk
        self.functions = {name: signature(text) for name, text in valid("functions").items()}
        self.classes = {name: signature(text) for name, text in valid("classes").items()}
        self.methods = {
            name: {method: signature(text) for method, text in methods.items()}
            for name, methods in data["methods"].items()
            if name in self.classes
        }
        self.enums, self.values = valid("enums"), valid("values")
        self.model_methods = {name: signature(text) for name, text in valid("model_methods").items()}
        self.config: Dict[str, str] = valid("config")
        self.poplar_options: Dict[str, Any] = data["poplar_options"]

    @property
    def names(self) -> Set[str]:
        return {*self.functions, *self.classes, *self.enums, *self.values}

    @property
    def modules(self) -> Set[str]:
        """Every module that holds an entry, and the packages around it."""
        found = set()
        for name in self.names:
            parts = name.split(".")[:-1]
            found |= {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
        return found - {"tensorflow", "tensorflow.python", "keras"}

    def signature_of(self, name: str) -> inspect.Signature:
        return self.functions[name] if name in self.functions else self.classes[name]


def signature(text: str) -> inspect.Signature:
    """The signature in a text such as `(value, reduce_op, tensor_name=None)`."""
    arguments = ast.parse(f"def f{text}: pass").body[0].args  # type: ignore[attr-defined]
    kinds = inspect.Parameter
    first_default = len(arguments.args) - len(arguments.defaults)
    parameters = [
        kinds(
            argument.arg,
            kinds.POSITIONAL_OR_KEYWORD,
            default=ast.literal_eval(arguments.defaults[i - first_default]) if i >= first_default else kinds.empty,
        )
        for i, argument in enumerate(arguments.args)
    ]
    if arguments.vararg:
        parameters.append(kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL))
    if arguments.kwarg:
        parameters.append(kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _of(sdk: str, entry: Dict[str, Any]) -> Any:
    for span, value in entry.items():
        first, last = span.split("-")
        if SDKS.index(first) <= SDKS.index(sdk) <= SDKS.index(last):
            return value
    return None
