"""What an instance spends its time on."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Callable, Dict, Iterator, List

import numpy as np

from ipulaunch.configs.runs.times import PARTS
from ipulaunch.workers.backends.collective import Collective

_DECIMALS = 6


class Stopwatch:
    """Divides time among the parts of the work: each moment counts for the innermost part that has begun.

    One thing is done at a time, also where TensorFlow does it on a thread of its own and ours waits.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.waited: Callable[[], float] = lambda: 0.0
        self.begin()

    def begin(self) -> None:
        """Forget what was before."""
        self.parts: List[str] = ["other"]
        self.since, self.seen = self.clock(), self.waited()
        self.seconds: Dict[str, float] = {}
        self.totals: Dict[str, float] = {}

    def follow(self, waited: Callable[[], float]) -> None:
        """Ask this, from now on, how long the device has waited for data: nobody else sees it inside of a call."""
        self.waited, self.seen = waited, waited()

    def turn_to(self, part: str) -> None:
        """Another part goes on from here, in place of the one before."""
        self._count(self.parts[-1])
        self.parts[-1] = part

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is done inside counts for this part."""
        self._count(self.parts[-1])
        self.parts.append(name)
        try:
            yield
        finally:
            self._count(self.parts.pop())

    def was(self, part: str) -> None:
        """The time since the last change was spent on this part."""
        self._count(part)

    def _count(self, part: str) -> None:
        now = self.clock()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self.since
        self.since = now

    def lap(self) -> Dict[str, float]:
        """The seconds of each part since the last lap."""
        self._count(self.parts[-1])
        found, self.seconds = self.seconds, {}
        waited = self.waited()
        # By another clock than ours, which somebody may set.
        hidden = min(max(0.0, waited - self.seen), found.get("device", 0.0))
        self.seen = waited
        if hidden:
            found["data"], found["device"] = found.get("data", 0.0) + hidden, found["device"] - hidden
        for part, seconds in found.items():
            self.totals[part] = self.totals.get(part, 0.0) + seconds
        return {part: round(seconds, _DECIMALS) for part, seconds in found.items() if seconds >= 10**-_DECIMALS}

    def of_all(self, collective: Collective) -> Dict[str, Any]:
        """What the summary says: the seconds of each part on every instance, and their means. All ask together."""
        table = collective.rows(np.array([self.totals.get(part, 0.0) for part in PARTS]))
        means, *by_instance = (dict(zip(PARTS, map(float, row))) for row in (table.mean(axis=0), *table))
        return {"times_s": means, "times_s_by_instance": by_instance}


class TimedCollective:
    """A collective whose time is known, with that in which an instance waits for the others."""

    def __init__(self, collective: Collective, times: Stopwatch) -> None:
        self.collective, self.times = collective, times

    def sum(self, values: np.ndarray) -> np.ndarray:
        with self.times.part("reduction"):
            return self.collective.sum(values)

    def rows(self, values: np.ndarray) -> np.ndarray:
        with self.times.part("reduction"):
            return self.collective.rows(values)

    def first(self, text: str) -> str:
        with self.times.part("reduction"):
            return self.collective.first(text)
