"""The kinds of values that settings have: how each is read, and what messages call it."""

from __future__ import annotations

import functools
import math
import re
import shlex
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, Callable, Dict, NamedTuple, NewType, Optional, Tuple, Union, get_type_hints

from ipulaunch.configs.text import yes_or_no

Lines = NewType("Lines", Tuple[str, ...])  # of shell, say: a text alone is one of them, with its commas
Words = NewType("Words", Tuple[str, ...])  # of a command: a text alone is read as a shell reads it

LONGEST_NUMBER = 1000  # characters; a million digits take minutes to read


class Kind(NamedTuple):
    """What the annotation of a setting means."""

    item: type  # of the value, or of each value of a list: int, float, Fraction, str or bool
    words: str  # what a message expects
    reader: Callable[[object], object]
    is_list: bool = False
    is_optional: bool = False

    def read(self, value: object) -> object:
        """The value that is meant; other values raise TypeError, ValueError or OverflowError."""
        return None if self.is_optional and value is None else self.reader(value)


@functools.lru_cache(maxsize=None)  # some two hundred settings have a dozen annotations
def kind_called(annotation: str) -> Kind:
    """The kind of a setting by its annotation as a source writes it, such as `Optional[int]`."""
    return kind_of(get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), _NAMES)["it"])


def kind_of(annotation: Any) -> Kind:
    """The kind of a setting with this annotation, which is resolved: a type, not its text."""
    if getattr(annotation, "__origin__", None) is Union:
        (inner,) = (each for each in annotation.__args__ if each is not type(None))
        return kind_of(inner)._replace(is_optional=True)
    return _KINDS[annotation]


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or _is_long(value):
        raise ValueError
    return int(value)


def _is_long(value: object) -> bool:
    """Whether a text is too long for a number."""
    return isinstance(value, str) and len(value) > LONGEST_NUMBER


def _number(value: object) -> float:
    # YAML 1.1 reads 1e-3 as text, so text that is a number is read as one.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or _is_long(value):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _text(value: object) -> str:
    # Names become paths, lines of scripts and words on a terminal; what cannot be encoded cannot be written down, and
    # an empty path would be the current directory.
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    if not value.isprintable() and re.search("[\\0-\x1f\x7f-\x9f\ud800-\udfff]", value):
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


_KINDS: Dict[Any, Kind] = {
    int: Kind(int, "a whole number", _whole),
    float: Kind(float, "a number", _number),
    bool: Kind(bool, "true or false", yes_or_no),
    str: Kind(str, "one line of text", _text),
    Fraction: Kind(Fraction, "a number or a fraction (1/2)", _fraction),
    Tuple[int, ...]: Kind(int, "whole numbers", _several(_whole), is_list=True),
    Tuple[float, ...]: Kind(float, "numbers", _several(_number), is_list=True),
    Tuple[str, ...]: Kind(str, "a list of names", _several(_text), is_list=True),
    Lines: Kind(str, "a list of lines", _lines, is_list=True),
    Words: Kind(str, "a list of words", _words, is_list=True),
}
# What annotations are made of.
_NAMES: Dict[str, Any] = {"Fraction": Fraction, "Lines": Lines, "Optional": Optional, "Tuple": Tuple, "Words": Words}
