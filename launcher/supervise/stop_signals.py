"""The signals that ask a launcher to stop. It notes them, and they interrupt it only where it waits."""

from __future__ import annotations

import contextlib
import signal
import time
from types import FrameType
from typing import Any, Dict, Iterator, Optional

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

# One request may arrive twice: from the scheduler, and from the job script or the container that hand it on; and as
# several signals: systemd ends a login session with TERM and, at once, HUP.
SAME_REQUEST_S = 1.0
SAME_KEY_S = 0.2  # Ctrl-C comes once for each key: a later one is a second request


class StopSignals:
    """Inside its `with` these signals are only noted: they end nothing by themselves."""

    def __init__(self) -> None:
        self.first: Optional[int] = None
        self.requests = 0
        self._first_at = 0.0
        self._interrupts = False
        self._before: Dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        # What is ignored stays ignored: that is how nohup keeps a run alive after its terminal has gone.
        caught = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in caught}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, the first request is a KeyboardInterrupt, whichever signal it is; so is one that has come before."""
        try:
            self._interrupts = True
            if self.requests:
                raise KeyboardInterrupt
            yield
        finally:
            self._interrupts = False

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        now = time.monotonic()
        same_s = SAME_REQUEST_S
        if number == signal.SIGINT:
            same_s = SAME_KEY_S if number == self.first else 0.0
        if self.requests and now < self._first_at + same_s:
            return
        if not self.requests:
            self.first, self._first_at = number, now
        self.requests += 1
        if self._interrupts:
            self._interrupts = False  # what cleans up after the first is not interrupted by the next
            raise KeyboardInterrupt
