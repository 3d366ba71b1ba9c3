"""Numbers that are known between two limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable


@dataclass(frozen=True)
class Range:
    """A number that lies between two limits; an exact one has equal limits."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)


def exactly(number: float) -> Range:
    """A number without uncertainty."""
    return Range(number, number)


def total(ranges: Iterable[Range]) -> Range:
    """The sum of some ranges."""
    return sum(ranges, exactly(0))
