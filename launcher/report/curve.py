"""One measure of a run by its updates, in bounded memory; its extremes are never lost."""

from __future__ import annotations

import bisect
import math
from array import array
from typing import List, NamedTuple, Sequence

_MOST_HELD = 1 << 17  # points; of more, every stretch of updates keeps four
_STRETCHES_HELD = 1 << 12
_LARGEST = 1e300  # beyond it, the distance of two values may be infinite


class Points(NamedTuple):
    """Points by update, in their order."""

    updates: Sequence[float]
    values: Sequence[float]


class Curve:
    """The values of one measure."""

    def __init__(self) -> None:
        self.updates, self.values = array("d"), array("d")
        self.count = 0  # of the values that can be drawn
        self.not_finite = 0

    def extend(self, updates: Sequence[float], values: Sequence[float]) -> None:
        """The next values; those that are not finite are only counted."""
        if not all(map(math.isfinite, values)) or min(values) < -_LARGEST or max(values) > _LARGEST:
            drawn = [(update, value) for update, value in zip(updates, values) if -_LARGEST <= value <= _LARGEST]
            self.not_finite += len(values) - len(drawn)
            updates, values = [update for update, _ in drawn], [value for _, value in drawn]
        self.updates.extend(map(float, updates))
        self.values.extend(map(float, values))
        self.count += len(values)
        if len(self.values) >= _MOST_HELD:
            self.updates, self.values = _reduced(self.updates, self.values, _STRETCHES_HELD)

    def points(self, most: int) -> Points:
        """At most so many points: of each stretch of updates the first, the lowest, the highest and the last."""
        if len(self.values) <= most:
            return Points(self.updates, self.values)
        return Points(*_reduced(self.updates, self.values, max(1, most // 4)))


def _reduced(updates: array[float], values: array[float], stretches: int) -> List[array[float]]:
    kept_updates, kept_values = array("d"), array("d")
    bounds = _bounds(updates, stretches)
    for begin, end in zip(bounds, bounds[1:]):
        if begin == end:
            continue
        part = values[begin:end]
        marks = {0, part.index(min(part)), part.index(max(part)), end - begin - 1}
        for mark in sorted(marks):
            kept_updates.append(updates[begin + mark])
            kept_values.append(part[mark])
    return [kept_updates, kept_values]


def _bounds(updates: array[float], stretches: int) -> List[int]:
    """Where stretches of equal numbers of updates begin and end; of equal numbers of points, if updates go back."""
    count, first, last = len(updates), updates[0], updates[-1]
    if last <= first or any(map(float.__gt__, updates, updates[1:])):
        return [number * count // stretches for number in range(stretches + 1)]
    step = (last - first) / stretches
    inner = [bisect.bisect_left(updates, first + step * number) for number in range(1, stretches)]
    return [0, *inner, count]
