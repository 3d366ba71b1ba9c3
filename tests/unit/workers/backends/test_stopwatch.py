from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest

from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.stopwatch import Stopwatch, TimedCollective


class Clock:
    """A clock that goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture()
def clock() -> Clock:
    return Clock()


def test_every_moment_counts_once_for_the_innermost_part(clock: Clock) -> None:
    times = Stopwatch(clock)
    clock.passes(1)
    times.turn_to("device")
    clock.passes(2)
    with times.part("checkpoint"):
        clock.passes(4)
        with times.part("reduction"):
            clock.passes(8)
        clock.passes(16)
    clock.passes(32)
    times.was("data")
    times.turn_to("other")
    clock.passes(64)
    assert times.lap() == {"other": 65, "device": 2, "checkpoint": 20, "reduction": 8, "data": 32}
    assert times.lap() == {}
    clock.passes(3)
    assert times.lap() == {"other": 3}
    assert sum(times.totals.values()) == clock.now


@pytest.mark.parametrize(
    ("waited", "expected"),
    [
        (6.0, {"data": 6, "device": 4}),
        (25.0, {"data": 10}),  # a clock that was set
        (-3.0, {"device": 10}),
    ],
    ids=["inside of the device's time", "longer than that", "backwards"],
)
def test_what_the_device_has_waited_is_taken_from_its_time(waited: float, expected: Any, clock: Clock) -> None:
    times, total = Stopwatch(clock), [100.0]
    times.follow(lambda: total[0])
    times.turn_to("device")
    clock.passes(10)
    total[0] += waited
    assert times.lap() == expected
    clock.passes(10)
    assert times.lap() == {"device": 10}


def test_a_new_beginning_forgets_what_was_before(clock: Clock) -> None:
    times, total = Stopwatch(clock), [0.0]
    times.follow(lambda: total[0])
    times.turn_to("device")
    clock.passes(10)
    total[0] = 5.0
    times.begin()
    clock.passes(1)
    assert times.lap() == times.totals == {"other": 1}


def test_instances_tell_each_other_their_totals(clock: Clock) -> None:
    class Two(Alone):
        def rows(self, values: np.ndarray) -> np.ndarray:
            return np.stack([values, 3 * values])

    times = Stopwatch(clock)
    collective = TimedCollective(Two(), times)
    with times.part("data"):
        clock.passes(2)
    times.lap()
    found = times.of_all(collective)
    waited: List[float] = [row["data"] for row in found["times_s_by_instance"]]
    assert waited == [2, 6] and found["times_s"]["data"] == 4


def test_what_all_instances_do_together_is_reduction(clock: Clock) -> None:
    class Slow(Alone):
        def sum(self, values: np.ndarray) -> np.ndarray:
            clock.passes(2)
            return values

        def rows(self, values: np.ndarray) -> np.ndarray:
            clock.passes(4)
            return values

        def first(self, text: str) -> str:
            clock.passes(8)
            return text

    times = Stopwatch(clock)
    collective = TimedCollective(Slow(), times)
    times.turn_to("device")
    clock.passes(1)
    collective.sum(np.zeros(1)), collective.rows(np.zeros(1)), collective.first("")
    assert times.lap() == {"device": 1, "reduction": 14}
