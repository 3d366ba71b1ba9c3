"""A sign of life that does not depend on progress, and an end where there is none."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
import time
from typing import Callable, Dict

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.workers.lifecycle.lifetime import end_here
from ipulaunch.workers.lifecycle.records import Records

INTERVAL_S = 1.0
_LATER_S = 5.0  # than the launcher, which ends a run that hangs two seconds after its time
_LOOKS = 8  # at the others, in the time that a run may hang


class Heartbeat:
    """Touches a file every second, so that the launcher can tell an instance that waits from one that has stopped.

    Dumps the Python stacks of all threads into the instance's log when `progress()` has not been called for long, and
    ends the instance where nobody else does: when no instance has made progress for longer than the launcher would
    wait, or when the run has gone on without it. That is how it ends on a host that was cut off.
    """

    def __init__(
        self,
        records: Records,
        stall_timeout_s: float,
        *,
        interval_s: float = INTERVAL_S,
        later_s: float = _LATER_S,
        end: Callable[[str], None] = end_here,
    ) -> None:
        self.records, self.stall_timeout_s = records, stall_timeout_s
        self.interval_s, self.later_s, self.end = interval_s, later_s, end
        self.path = records.run.heartbeat(records.instance)
        self.ended = threading.Event()
        # Two, as the file system of a host that was cut off may keep the one that touches files for ever.
        self.threads = [
            threading.Thread(target=self._beat, name="heartbeat", daemon=True),
            threading.Thread(target=self._watch, name="stall watch", daemon=True),
        ]
        self.last = time.monotonic()

    def start(self) -> None:
        self.path.touch()
        self.progress()
        for thread in self.threads:
            thread.start()

    def progress(self) -> None:
        """Something has happened: the time until the stacks are dumped begins anew."""
        self.last = time.monotonic()
        faulthandler.dump_traceback_later(self.stall_timeout_s, exit=False)

    def _beat(self) -> None:
        seen, seen_at = self._sizes(), time.monotonic()
        while not self.ended.wait(self.interval_s):
            if not self.records.are_current:
                self.end("the run continues without this instance: its directory was moved away")
                return
            with contextlib.suppress(OSError):  # the run directory is gone, which others report
                os.utime(self.path)
            now = time.monotonic()
            if now - seen_at >= self.stall_timeout_s / _LOOKS:
                found = self._sizes()
                if found != seen:  # others may be busy for long while we wait for them
                    self.last = now
                seen, seen_at = found, now

    def _watch(self) -> None:
        # No look at files in here.
        while not self.ended.wait(self.interval_s):
            silent_s = time.monotonic() - self.last
            if silent_s > self.stall_timeout_s + self.later_s:
                self.end(
                    f"no progress for {silent_s:.0f} s (--stall-timeout is {self.stall_timeout_s:g}), and the launcher"
                    " has not ended this instance: it may be cut off"
                )
                return

    def _sizes(self) -> Dict[int, int]:
        """How much each instance has recorded."""
        sizes = {}
        run = self.records.run
        for instance in run.instances():
            with contextlib.suppress(OSError):  # it has not begun yet
                sizes[instance] = run.events(instance).stat().st_size
        return sizes


def show_life(run: RunDirectory, index: int, stall_timeout_s: float) -> Records:
    """The records of an instance, which show that it lives from now on."""
    records = Records(run, index)
    heartbeat = Heartbeat(records, stall_timeout_s)
    heartbeat.start()
    records.on_event = heartbeat.progress
    return records
