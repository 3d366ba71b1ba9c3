from __future__ import annotations

import math
import random
from typing import List

import pytest

from ipulaunch.launcher.report.curve import Curve

MANY = 200_000  # more than a curve holds


def curve_of(values: List[float], first: int = 1) -> Curve:
    curve = Curve()
    for begin in range(0, len(values), 1000):
        part = values[begin : begin + 1000]
        curve.extend(range(first + begin, first + begin + len(part)), part)
    return curve


def test_few_values_are_kept_as_they_are() -> None:
    points = curve_of([3.0, 1.0, 2.0]).points(1000)
    assert (list(points.updates), list(points.values)) == ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0])


def test_of_many_values_no_extreme_is_lost_and_each_point_is_one_of_them() -> None:
    draw = random.Random(3)
    values = [draw.random() for _ in range(MANY)]
    values[77_777], values[123_456] = 9.0, -9.0
    points = curve_of(values).points(1000)
    assert len(points.values) <= 1000
    found = dict(zip(points.updates, points.values))
    assert found[77_778.0] == 9.0 and found[123_457.0] == -9.0
    assert all(values[int(update) - 1] == value for update, value in found.items())
    assert found[1.0] == values[0] and found[float(MANY)] == values[-1]
    assert list(points.updates) == sorted(points.updates)


def test_every_stretch_keeps_its_own_lowest_and_highest() -> None:
    values = [math.sin(number) for number in range(MANY)]
    points = curve_of(values).points(400)
    for begin in range(0, MANY, MANY // 50):
        part = [value for update, value in zip(*points) if begin < update <= begin + MANY // 50]
        assert min(part) < -0.999 and max(part) > 0.999


def test_values_that_are_not_finite_are_counted_and_not_drawn() -> None:
    curve = curve_of([1.0, math.nan, math.inf, -math.inf, 1e305, 2.0])
    assert (curve.count, curve.not_finite, list(curve.values)) == (2, 4, [1.0, 2.0])


@pytest.mark.parametrize("updates", [[5] * 3000, list(range(3000, 0, -1))], ids=["all the same", "backwards"])
def test_updates_that_do_not_grow_are_thinned_as_well(updates: List[int]) -> None:
    curve = Curve()
    curve.extend(updates, [float(number) for number in range(3000)])
    points = curve.points(100)
    assert len(points.values) <= 100 and (min(points.values), max(points.values)) == (0.0, 2999.0)
