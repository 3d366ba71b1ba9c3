"""Progress at a pace that a reader can follow, not a line for each of a million files."""

from __future__ import annotations

import time
from typing import Callable

_INTERVAL_S = 1.0

Progress = Callable[[int, int], object]  # (done, in all)


def throttled(progress: Progress, clock: Callable[[], float] = time.monotonic) -> Callable[[int, int], None]:
    """The same progress, reported at its beginning, at its end, and at most once a second between them."""
    next_time = float("-inf")

    def report(done: int, total: int) -> None:
        nonlocal next_time
        now = clock()
        if now >= next_time or done == total:
            next_time = now + _INTERVAL_S
            progress(done, total)

    return report
