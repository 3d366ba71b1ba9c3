"""Words that messages share."""

from __future__ import annotations

import time
from typing import Iterable, Optional, Sequence

ENABLE_SDK = "enable the SDK: source <sdk>/enable.sh"


def counted(number: int, noun: str, nouns: str = "") -> str:
    """A number with its noun: 1 replica, 2 replicas."""
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or noun + 's'}"


def some(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """The first few of several names, and how many more there are."""
    more = len(names) - most
    return between.join(names[:most]) + (f" and {more} more" if more > 0 else "")


def utc(seconds: Optional[float] = None) -> str:
    """A time, or now, as records have it: UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def either(choices: Iterable[object]) -> str:
    """What there is to choose from: 1, 2 or 4."""
    *first, last = map(str, choices)
    return f"{', '.join(first)} or {last}" if first else last
