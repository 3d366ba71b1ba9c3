"""A sign of life that does not depend on progress, and a last word when there is none."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
from pathlib import Path

INTERVAL_S = 1.0


class Heartbeat:
    """Touches a file every second, so that an instance that waits can be told from one that has stopped.

    Dumps the Python stacks of all threads into the instance's log when `progress()` has not been called for long.
    """

    def __init__(self, path: Path, stall_timeout_s: float) -> None:
        self.path, self.stall_timeout_s = path, stall_timeout_s
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        self.path.touch()
        self.thread.start()
        self.progress()

    def progress(self) -> None:
        """Something has happened: the time until the stacks are dumped begins anew."""
        faulthandler.dump_traceback_later(self.stall_timeout_s, exit=False)

    def stop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self.ended.set()

    def _beat(self) -> None:
        while not self.ended.wait(INTERVAL_S):
            with contextlib.suppress(OSError):  # the run directory is gone, which others will tell
                os.utime(self.path)
