"""Progress that is told of as often as somebody reads it, not for every one of a million files."""

from __future__ import annotations

import time
from typing import Callable

_INTERVAL_S = 1.0

Progress = Callable[[int, int], object]  # (done, in all)


def now_and_then(tell: Progress, clock: Callable[[], float] = time.monotonic) -> Callable[[int, int], None]:
    """The same progress, told of at its beginning, at its end, and at most once a second between them."""
    next_time = float("-inf")

    def progress(done: int, total: int) -> None:
        nonlocal next_time
        now = clock()
        if now >= next_time or done == total:
            next_time = now + _INTERVAL_S
            tell(done, total)

    return progress
