"""How a dataclass describes settings: `setting()` declares a value, `build()` checks a tree against it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple, Type, TypeVar, Union

from ipulaunch.configs.errors import SettingsError, near_miss
from ipulaunch.configs.tree import Given, Section, Tree

S = TypeVar("S")


def setting(
    default: Any,
    help: str,
    *,
    flag: str = "",
    choices: Tuple[str, ...] = (),
    at_least: Optional[float] = None,
    below: Optional[float] = None,
    above: Optional[float] = None,
) -> Any:
    """A value of a settings dataclass: its default, what it means, its limits and its own option, if it has one."""
    limits = {"choices": choices, "at_least": at_least, "below": below, "above": above}
    return dataclasses.field(default=default, metadata={"help": help, "flag": flag, **limits})


def section(cls: Type[S]) -> S:
    """A nested group of settings."""
    field: S = dataclasses.field(default_factory=cls, metadata={"section": cls})
    return field


class Leaf(NamedTuple):
    """One setting of a schema: its dotted key, its kind and what was declared of it."""

    key: str
    kind: str
    default: object
    about: Mapping[str, Any]


def leaves(cls: type, prefix: str = "") -> Iterator[Leaf]:
    """Every setting of a schema, in the order it is written down."""
    for field in dataclasses.fields(cls):
        key = prefix + field.name
        if "section" in field.metadata:
            yield from leaves(field.metadata["section"], key + ".")
        else:
            yield Leaf(key, str(field.type), field.default, field.metadata)


def build(cls: Type[S], tree: Tree, origins: Dict[str, str]) -> S:
    """The settings a tree holds; unknown keys and wrong values are refused. Fills `origins` key by key."""
    return _made(cls, _values(cls, tree, origins, "", cls))


def check(cls: type, tree: Tree) -> None:
    """Refuse unknown keys and wrong values of one layer; what must fit together is seen when all layers are."""
    _values(cls, tree, {}, "", cls)


def _made(cls: Type[S], values: Dict[str, Any]) -> S:
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if "section" in field.metadata:
            values[field.name] = _made(field.metadata["section"], values[field.name])
    return cls(**values)


def _values(cls: type, tree: Tree, origins: Dict[str, str], prefix: str, root: type) -> Dict[str, Any]:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key, value in tree.items():
        if key not in fields:
            known = [prefix + name for name in fields] + [leaf.key for leaf in leaves(root)]
            message = f"{_first_origin(value)}: {prefix}{key} is not a setting"
            raise SettingsError(message, hint=near_miss(prefix + key, set(known)))
    values: Dict[str, Any] = {}
    for name, field in fields.items():
        key, given = prefix + name, tree.get(name)
        if "section" in field.metadata:
            if isinstance(given, Given):
                inside = ", ".join(f.name for f in dataclasses.fields(field.metadata["section"]))
                message = f"{given.origin}: {key} is {given.value!r}, expected a section with {inside}"
                raise SettingsError(message)
            values[name] = _values(field.metadata["section"], given or {}, origins, key + ".", root)
        elif given is None:
            origins[key] = "default"
        elif isinstance(given, dict):
            message = f"{_first_origin(given)}: {key} is one value, not a section"
            raise SettingsError(message, hint=f"expected {_expected(str(field.type), field.metadata)}")
        else:
            values[name] = _checked(key, str(field.type), given, field.metadata)
            origins[key] = given.origin
    return values


def _first_origin(value: Union[Given, Tree, None]) -> str:
    while isinstance(value, dict) and value and not isinstance(value, Section):
        value = next(iter(value.values()))
    return value.origin if isinstance(value, (Given, Section)) else "settings"


def _checked(key: str, kind: str, given: Given, about: Mapping[str, Any]) -> object:
    try:
        value = _KINDS[kind](given.value)
        if value is None or _within(value, about):
            return value
    except (TypeError, ValueError, OverflowError):
        pass
    message = f"{given.origin}: {key} is {given.value!r}, expected {_expected(kind, about)}"
    choices = about["choices"]
    hint = near_miss(str(given.value), choices) if choices else about["help"]
    raise SettingsError(message, hint=hint)


def _within(value: Any, about: Mapping[str, Any]) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if about["choices"] and item not in about["choices"]:
            return False
        if about["at_least"] is not None and item < about["at_least"]:
            return False
        if about["below"] is not None and item >= about["below"]:
            return False
        if about["above"] is not None and item <= about["above"]:
            return False
    return True


def _expected(kind: str, about: Mapping[str, Any]) -> str:
    words = "one of " + ", ".join(about["choices"]) if about["choices"] else _WORDS[kind]
    if about["at_least"] is not None:
        words += f" of at least {about['at_least']:g}"
    if about["above"] is not None:
        words += f" above {about['above']:g}"
    if about["below"] is not None:
        words += f" below {about['below']:g}"
    return words


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError
    return int(value)


def _number(value: object) -> float:
    # YAML 1.1 reads 1e-3 as text, so text that is a number counts.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _yes_no(value: object) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    word = str(value).lower()
    if word not in words:
        raise ValueError
    return words[word]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _optional(inner: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else inner(value)


_KINDS: Dict[str, Callable[[object], object]] = {
    "int": _whole,
    "float": _number,
    "bool": _yes_no,
    "str": _text,
    "Optional[int]": _optional(_whole),
    "Optional[float]": _optional(_number),
    "Optional[str]": _optional(_text),
}

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "Optional[int]": "a whole number",
    "Optional[float]": "a number",
    "Optional[str]": "text",
}
