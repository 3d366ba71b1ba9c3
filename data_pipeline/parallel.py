"""Work on many items by several threads, with progress counted and reported."""

from __future__ import annotations

import collections
import itertools
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Deque, Dict, Generator, Iterable, Optional, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[Dict[str, Any]], None]

_REPORT_INTERVAL_S = 0.1  # for a bar
_READING_INTERVAL_S = 1.0  # for lines that somebody reads
_AHEAD = 4  # items per thread in progress, so that few results wait for their turn


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0))


class GivenUp(Exception):
    """Nobody waits for the work of this thread any more."""


class Progress:
    """Counts finished work, from any thread, and reports it from time to time."""

    def __init__(self, report: Report, what: str, total: int) -> None:
        self.report, self.what, self.total, self.done = report, what, total, 0
        self.lock = threading.Lock()
        self.next_report = 0.0
        self.is_given_up = False

    def check(self) -> None:
        """End the work of this thread if nobody waits for it."""
        if self.is_given_up:
            raise GivenUp

    def reach(self, done: int, total: int) -> None:
        """So much is done; what somebody else has counted."""
        self.add(done - self.done)

    def add(self, count: int = 1) -> None:
        self.check()
        with self.lock:
            self.done += count
            now = time.monotonic()
            if now >= self.next_report or self.done == self.total:
                self.next_report = now + _REPORT_INTERVAL_S
                self.report({"event": "progress", "what": self.what, "done": self.done, "total": self.total})


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, progress: Optional[Progress] = None
) -> Generator[Result, None, None]:
    """The results of the work on each item, in the order of the items. The first error ends the work.

    So does an interrupt. The function waits for work in progress: work that uses `progress` ends at its next count.
    """
    waiting: Deque[Future[Result]] = collections.deque()
    rest = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        try:
            waiting.extend(pool.submit(work, item) for item in itertools.islice(rest, _AHEAD * threads))
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(work, item) for item in itertools.islice(rest, 1))
        except BaseException:  # an error of the work, an interrupt, or nobody reads the results any more
            if progress is not None:
                progress.is_given_up = True
            for future in waiting:
                future.cancel()
            raise


def throttled(
    progress: Callable[[int, int], object], clock: Callable[[], float] = time.monotonic
) -> Callable[[int, int], None]:
    """The same progress of (done, in all), reported at its start, at its end, and at most once a second between."""
    next_time = float("-inf")

    def report(done: int, total: int) -> None:
        nonlocal next_time
        now = clock()
        if now >= next_time or done == total:
            next_time = now + _READING_INTERVAL_S
            progress(done, total)

    return report
