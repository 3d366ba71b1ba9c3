"""A run that hangs: nothing has happened for long, and who was silent."""

from __future__ import annotations

import time
from typing import Callable, List, Optional

from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.topology import Plan

_LATER_S = 2.0  # instances dump their stacks after the same time: let them be the first
_STALE_S = 5.0  # heartbeats come every second


class StallWatch:
    """Watches for records that do not come any more."""

    def __init__(
        self, run: RunDirectory, plan: Plan, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.run, self.plan, self.timeout_s, self.clock = run, plan, timeout_s, clock
        self.last = clock()

    def saw_progress(self) -> None:
        self.last = self.clock()

    def verdict(self) -> Optional[str]:
        """What to say of a run that hangs; None while it does not."""
        if self.clock() - self.last < self.timeout_s + _LATER_S:
            return None
        silent = self._silent()
        who = ", ".join(f"{self.plan.placements[i].host}:{i}" for i in silent[:4])
        more = f" and {len(silent) - 4} more" if len(silent) > 4 else ""
        what = f"{who}{more} stopped showing signs of life" if silent else "all instances live, and wait"
        return f"no progress for {self.timeout_s:g} s: {what}"

    def _silent(self) -> List[int]:
        """The instances whose heartbeat is older than that of the others; those without one never started."""
        beats = {}
        for placement in self.plan.placements:
            try:
                beats[placement.instance] = self.run.heartbeat(placement.instance).stat().st_mtime
            except OSError:
                beats[placement.instance] = 0.0
        newest = max(max(beats.values()), time.time() - _STALE_S)
        return [instance for instance, beat in beats.items() if newest - beat >= _STALE_S]
