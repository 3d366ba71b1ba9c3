"""Curves as the numbers of an SVG picture, which the page writes as elements; all text stays text."""

from __future__ import annotations

import math
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from ipulaunch.launcher.report.curve import Curve, Points

WIDTH, HEIGHT = 640, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 14, 12, 40
_MOST_POINTS = 1000  # of a curve: a picture is 554 units wide
_MOST_DOTS = 60


class Tick(NamedTuple):
    """A mark on an axis."""

    at: float
    label: str


class Line(NamedTuple):
    """A curve in the units of the picture."""

    label: str
    style: int  # one of the colours of the page
    path: str
    dots: Sequence[Tuple[float, float]]  # of a curve with few points
    drawn: int
    measured: int
    low: str
    high: str
    last: str


class Panel(NamedTuple):
    """A picture of one measure."""

    title: str
    x_label: str
    lines: Sequence[Line]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    not_finite: int

    @property
    def drawn(self) -> int:
        return sum(line.drawn for line in self.lines)

    @property
    def measured(self) -> int:
        return sum(line.measured for line in self.lines)

    @property
    def left(self) -> int:
        return _LEFT

    @property
    def right(self) -> int:
        return WIDTH - _RIGHT

    @property
    def top(self) -> int:
        return _TOP

    @property
    def bottom(self) -> int:
        return HEIGHT - _BOTTOM

    @property
    def said(self) -> str:
        """The picture in words."""
        lines = (f"{line.label} from {line.low} to {line.high}, last {line.last}" for line in self.lines)
        return f"{self.title} by {self.x_label}: {'; '.join(lines)}"


class Series(NamedTuple):
    """A curve to be drawn, with its label and its colour."""

    label: str
    style: int
    curve: Curve
    scale: float = 1.0  # of its updates


def draw(title: str, series: Sequence[Series], *, x_label: str = "update", from_zero: bool = False) -> Optional[Panel]:
    """The picture of curves that share their axes; nothing without a value."""
    drawn = [(each, each.curve.points(_MOST_POINTS)) for each in series if each.curve.count]
    if not drawn:
        return None
    x_low, x_high = _range([update * each.scale for each, points in drawn for update in points.updates], True, 1.0)
    y_low, y_high = _range([value for _, points in drawn for value in points.values], from_zero, 1.05)
    across, up = (WIDTH - _LEFT - _RIGHT) / (x_high - x_low), (HEIGHT - _TOP - _BOTTOM) / (y_high - y_low)

    def x_of(value: float) -> float:
        return round(_LEFT + (value - x_low) * across, 1)

    def y_of(value: float) -> float:
        return round(HEIGHT - _BOTTOM - (value - y_low) * up, 1)

    lines = [_line(each, points, x_of, y_of) for each, points in drawn]
    x_ticks = [Tick(x_of(value), label) for value, label in ticks(x_low, x_high, 7, whole=True)]
    y_ticks = [Tick(y_of(value), label) for value, label in ticks(y_low, y_high, 5)]
    return Panel(title, x_label, lines, x_ticks, y_ticks, sum(each.curve.not_finite for each in series))


def _line(series: Series, points: Points, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> Line:
    places = [(x_of(update * series.scale), y_of(value)) for update, value in zip(*points)]
    values = points.values
    return Line(
        series.label,
        series.style,
        " ".join(f"{x:g},{y:g}" for x, y in places),
        places if len(places) <= _MOST_DOTS else (),
        len(places),
        series.curve.count,
        *(number_text(value) for value in (min(values), max(values), values[-1])),
    )


def _range(values: Sequence[float], from_zero: bool, room: float) -> Tuple[float, float]:
    """What an axis shows: from 0 to so many times the highest, or with some room on both sides."""
    low, high = min(values), max(values)
    if from_zero:
        low = min(low, 0.0)
        return low, high * room if high > 0 else high + 1.0
    margin = (high - low) * 0.04 if high - low > abs(high) * 1e-12 else abs(high) * 0.05 or 1.0
    return low - margin, high + margin


def ticks(low: float, high: float, about: int, *, whole: bool = False) -> List[Tuple[float, str]]:
    """Round numbers within a range, and their texts."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    numbers = [(first + number) * step for number in range(4 * about) if (first + number) * step <= high + step * 1e-9]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    largest = max(map(abs, numbers), default=0.0)
    if decimals > 6 or largest >= 1e15:
        digits = max(1, math.ceil(math.log10(max(largest / step, 1.0)))) + 1
        return [(number, f"{number:.{min(digits, 12)}g}") for number in numbers]
    return [(number, f"{number:,.{decimals}f}") for number in numbers]


def number_text(value: float) -> str:
    """A value as people read it."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
