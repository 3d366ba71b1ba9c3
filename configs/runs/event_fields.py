"""What the fields of an event may hold, by their types: anybody may have written the line."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Tuple


def is_number(value: object) -> bool:
    return type(value) in (int, float)


def are_durations(value: object) -> bool:
    return isinstance(value, dict) and all(is_number(each) and 0 <= each < float("inf") for each in value.values())


# A check for each type, and what it expects, in words.
EXPECTED: Dict[Any, Tuple[Callable[[Any], bool], str]] = {
    int: (lambda value: type(value) is int and value >= 0, "a count"),
    float: (is_number, "a number"),
    Optional[float]: (lambda value: value is None or is_number(value), "a number or null"),
    str: (lambda value: isinstance(value, str), "text"),
    Optional[str]: (lambda value: value is None or isinstance(value, str), "text or null"),
    Mapping[str, Any]: (lambda value: isinstance(value, dict), "an object"),
    Mapping[str, float]: (are_durations, "an object of durations"),
}
