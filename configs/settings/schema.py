"""How a dataclass describes settings: `setting()` declares a value, `build()` checks a tree against it."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import shlex
from fractions import Fraction
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Type, TypeVar

from ipulaunch.configs.errors import SettingsError, near_miss, nearest
from ipulaunch.configs.settings.tree import Given, Tree, first_origin, variable

S = TypeVar("S")
Lines = Tuple[str, ...]  # of shell, say: a text alone is one of them, with its commas
Words = Tuple[str, ...]  # of a command: a text alone is read as a shell reads it

_LONGEST_NUMBER = 1000  # characters
_MOST = 10**12  # of whatever is counted, unless its setting says otherwise: plans look for divisors of such numbers


def setting(
    default: Any,
    help: str,
    *,
    flag: str = "",
    choices: Tuple[str, ...] = (),
    at_least: Optional[float] = None,
    at_most: Optional[float] = None,
    below: Optional[float] = None,
    above: Optional[float] = None,
    ipu_only: bool = False,
    is_path: bool = False,
    also: Tuple[str, ...] = (),
    spellings: Optional[Mapping[object, object]] = None,
) -> Any:
    """A value of a settings dataclass: its default, what it means, its limits and its own option, if it has one.

    What is `ipu_only` has no meaning on a CPU: a rehearsal records it and says so. The published applications call some
    options and values otherwise: `also` are further names of the option, and `spellings` says which value is meant.
    """
    limits = {"choices": choices, "at_least": at_least, "at_most": at_most, "below": below, "above": above}
    names = {"help": help, "flag": flag, "also": also, "spellings": spellings or {}}
    about = {**names, "ipu_only": ipu_only, "is_path": is_path}
    return dataclasses.field(default=default, metadata={**about, **limits})


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


def value_of(settings: object, key: str) -> Any:
    """The value of a setting under its dotted key."""
    return functools.reduce(getattr, key.split("."), settings)


def with_value(settings: Any, key: str, value: object) -> Any:
    """The settings with another value under a dotted key."""
    first, _, rest = key.partition(".")
    return dataclasses.replace(
        settings, **{first: with_value(getattr(settings, first), rest, value) if rest else value}
    )


def plain(settings: Any) -> Dict[str, Any]:
    """The settings as values that YAML has; build() gives back equal settings."""
    return dataclasses.asdict(settings, dict_factory=lambda items: {key: plain_value(value) for key, value in items})


def plain_value(value: object) -> object:
    """A setting's value as YAML has it."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Fraction) else value


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
            raise _unknown(prefix + key, first_origin(value), [prefix + name for name in fields], root)
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
            message = f"{first_origin(given)}: {key} is one value, not a section"
            raise SettingsError(message, hint=f"expected {_expected(str(field.type), field.metadata)}")
        else:
            values[name] = _checked(key, str(field.type), given, field.metadata)
            origins[key] = given.origin
    return values


def _unknown(key: str, origin: str, beside: List[str], root: type) -> SettingsError:
    """What to say of a key that no setting has, in the words of the place that it came from."""
    known = [leaf.key for leaf in leaves(root)]
    if origin == variable(key):
        prefix = variable("")  # which all have in common, and would make everything near
        meant = nearest(origin[len(prefix) :], (variable(each)[len(prefix) :] for each in known))
        example = f"variables are named after settings: {variable(known[0])} for {known[0]}"
        return SettingsError(f"{origin} is not a setting", hint=meant.replace("mean ", f"mean {prefix}") or example)
    every = {*beside, *known}
    hint = nearest(key, every) or near_miss(key, beside if "." in key else every)
    return SettingsError(f"{origin}: {key} is not a setting", hint=hint)


def _checked(key: str, kind: str, given: Given, about: Mapping[str, Any]) -> object:
    try:
        chosen = _chosen(_meant(given.value, about["spellings"]), about["choices"])
        if "str" in kind and isinstance(chosen, (bool, int, float)) and given.text is not None:
            chosen = given.text  # 2024, 0123 and no are names of directories as well
        value = _KINDS[kind](chosen)
        if value is None or _within(value, about):
            return value
    except (TypeError, ValueError, OverflowError):
        pass
    if "int" in kind and _is_beyond(given.value, about):
        about = {**about, "at_most": _MOST}
    message = f"{given.origin}: {key} is {given.value!r}, expected {_expected(kind, about)}"
    if isinstance(given.value, str) and not given.value.strip():
        raise SettingsError(message, hint="is the variable that it came from set?")
    choices = about["choices"]
    another = f"give another value, or none for what is shipped; it means: {about['help']}"
    raise SettingsError(message, hint=nearest(str(given.value), choices) or another)


def _meant(value: object, spellings: Mapping[object, object]) -> object:
    """The value that a published spelling stands for; any other one is meant as it is."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else value
    return next((meant for written, meant in spellings.items() if word == written), value)


def _chosen(value: object, choices: Tuple[str, ...]) -> object:
    """The choice that is meant, in any case of letters; YAML 1.1 reads a bare ON or OFF as true or false."""
    if isinstance(value, bool) and "on" in choices:
        value = "on" if value else "off"
    return next((choice for choice in choices if choice.lower() == str(value).lower()), value)


def _within(value: Any, about: Mapping[str, Any]) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if about["choices"] and item not in about["choices"]:
            return False
        if about["at_least"] is not None and item < about["at_least"]:
            return False
        if (about["at_most"] is not None and item > about["at_most"]) or _is_beyond(item, about):
            return False
        if about["below"] is not None and item >= about["below"]:
            return False
        if about["above"] is not None and item <= about["above"]:
            return False
    return True


def _is_beyond(value: object, about: Mapping[str, Any]) -> bool:
    """Whether a whole number that has no upper limit of its own is larger than any that is meant."""
    has_limit = about["at_most"] is not None or about["below"] is not None
    return type(value) is int and value > _MOST and not has_limit


def _expected(kind: str, about: Mapping[str, Any]) -> str:
    words = "one of " + ", ".join(about["choices"]) if about["choices"] else _WORDS[kind]
    limits = {"at_least": "of at least", "above": "above", "at_most": "at most", "below": "below"}
    found = [f"{text} {about[name]:,}" for name, text in limits.items() if about[name] is not None]
    return " ".join([words, " and ".join(found)]) if found else words


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or _is_long(value):
        raise ValueError
    return int(value)


def _is_long(value: object) -> bool:
    """Whether a text is too long for a number: a million digits take minutes to read."""
    return isinstance(value, str) and len(value) > _LONGEST_NUMBER


def _number(value: object) -> float:
    # YAML 1.1 reads 1e-3 as text, so text that is a number counts.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or _is_long(value):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def yes_or_no(value: object) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    word = str(value).lower()
    if word not in words:
        raise ValueError
    return words[word]


def _text(value: object) -> str:
    # Names become paths, lines of scripts and words on a terminal; what cannot be encoded cannot be written down, and
    # an empty path would be the current directory.
    if not isinstance(value, str) or not value.strip() or re.search("[\\0-\x1f\x7f-\x9f\ud800-\udfff]", value):
        raise ValueError
    return value


def _fraction(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    for part in str(value).split("/"):
        number = _number(part)  # no infinities
        # 1e-999999999 and 0e999999999 are 0 as floats, and a thousand million digits as fractions.
        if "e" in part.lower() and not number:
            raise ValueError
    try:
        return Fraction(value).limit_denominator(1_000_000)  # 0.1 is a tenth
    except ZeroDivisionError:
        raise ValueError from None


def _several(inner: Callable[[object], object]) -> Callable[[object], object]:
    """A list, also as words with commas, or one value alone."""

    def read(value: object) -> object:
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",")]
        return tuple(map(inner, value)) if isinstance(value, (list, tuple)) else (inner(value),)

    return read


def _lines(value: object) -> object:
    return tuple(map(_text, value)) if isinstance(value, (list, tuple)) else (_text(value),)


def _words(value: object) -> object:
    return _lines(shlex.split(_text(value)) if isinstance(value, str) else value)


def _optional(inner: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else inner(value)


_KINDS: Dict[str, Callable[[object], object]] = {
    "int": _whole,
    "float": _number,
    "bool": yes_or_no,
    "str": _text,
    "Optional[bool]": _optional(yes_or_no),
    "Optional[int]": _optional(_whole),
    "Optional[float]": _optional(_number),
    "Optional[str]": _optional(_text),
    "Fraction": _fraction,
    "Optional[Fraction]": _optional(_fraction),
    "Tuple[int, ...]": _several(_whole),
    "Tuple[float, ...]": _several(_number),
    "Tuple[str, ...]": _several(_text),
    "Lines": _lines,
    "Words": _words,
}

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "one line of text",
    "Optional[bool]": "true or false",
    "Optional[int]": "a whole number",
    "Optional[float]": "a number",
    "Optional[str]": "one line of text",
    "Fraction": "a number or a fraction (1/2)",
    "Optional[Fraction]": "a number or a fraction (1/2)",
    "Tuple[int, ...]": "whole numbers",
    "Tuple[float, ...]": "numbers",
    "Tuple[str, ...]": "a list of names",
    "Lines": "a list of lines",
    "Words": "a list of words",
}
