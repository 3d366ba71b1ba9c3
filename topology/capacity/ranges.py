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

    def times_range(self, other: Range) -> Range:
        """The product of two positive numbers."""
        return Range(self.low * other.low, self.high * other.high)

    def over(self, other: Range) -> Range:
        """The quotient of two positive numbers that know nothing of each other."""
        return Range(self.low / other.high, self.high / other.low)

    @property
    def middle(self) -> float:
        """The geometric mean of the limits, which is as many times the lower one as it is below the upper one."""
        return float((self.low * self.high) ** 0.5)


def exactly(number: float) -> Range:
    """A number without uncertainty."""
    return Range(number, number)


def total(ranges: Iterable[Range]) -> Range:
    """The sum of some ranges."""
    return sum(ranges, exactly(0))


def least(ranges: Iterable[Range]) -> Range:
    """The smallest of some numbers."""
    found = list(ranges)
    return Range(min(each.low for each in found), min(each.high for each in found))
