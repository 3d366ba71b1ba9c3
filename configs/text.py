"""Words that messages share, and the words for yes and no."""

from __future__ import annotations

import time
from typing import Iterable, Optional, Sequence

ENABLE_SDK = "enable the SDK: source <sdk>/enable.sh"
# The words for yes and no that settings and poprun take.
YES_NO = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def counted(number: int, noun: str, nouns: str = "") -> str:
    """A number with its noun: 1 replica, 2 replicas."""
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or noun + 's'}"


def some(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """The first few of several names, and how many more there are."""
    more = len(names) - most
    return between.join(names[:most]) + (f" and {more} more" if more > 0 else "")


def duration(seconds: float) -> str:
    """A time as people say it: 40 s, 3 min, 2 h 10 min, 3 d 4 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def utc(seconds: Optional[float] = None) -> str:
    """A time, or now, as records have it: UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def either(choices: Iterable[object]) -> str:
    """What there is to choose from: 1, 2 or 4."""
    *first, last = map(str, choices)
    return f"{', '.join(first)} or {last}" if first else last


def yes_or_no(value: object) -> bool:
    """What a word, a number or a truth value says; anything else raises ValueError."""
    word = str(value).lower()
    if word not in YES_NO:
        raise ValueError(f"{word} is neither yes nor no")
    return YES_NO[word]
