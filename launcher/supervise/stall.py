"""Finding out that a run hangs, and which instances are silent."""

from __future__ import annotations

import time
from typing import Callable, Collection, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.text import some
from ipulaunch.topology import Plan

_LATER_S = 2.0  # instances dump their stacks after the same time: let them be the first
_STALE_S = 5.0  # heartbeats come every second
_MOST_NAMES = 4


class Hang(NamedTuple):
    """A run that hangs: a sentence about it, and the instance whose log helps most."""

    said: str
    instance: int
    hint: str = ""


class StallWatch:
    """Watches a run for events, and considers it hung when they stop.

    It calls `ask_hosts()` once, when the run hangs, to learn what is wrong with which host: a host that was cut off may
    still touch its files, and one that was switched off leaves the file system of all as it was. `joining()` gives the
    instances that wait for others: mpi4py starts MPI with Python's lock held, so they show no signs of life either.
    """

    def __init__(
        self,
        run: RunDirectory,
        plan: Plan,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        ask_hosts: Callable[[], Mapping[str, str]] = dict,
        joining: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self.run, self.plan, self.timeout_s, self.clock = run, plan, timeout_s, clock
        self.ask_hosts, self.joining = ask_hosts, joining
        self.last = clock()
        self.found: Optional[Hang] = None

    def saw_progress(self) -> None:
        self.last = self.clock()

    def verdict(self) -> Optional[Hang]:
        """The hang, or None while the run makes progress."""
        if self.found is None and self.clock() - self.last >= self.timeout_s + _LATER_S:
            who, instance, hint = self._who()
            self.found = Hang(f"no progress for {self.timeout_s:g} s: {who}", instance, hint)
        return self.found

    def _who(self) -> Tuple[str, int, str]:
        """Who is silent, the first instance of those, and what may help."""
        placements, troubles = self.plan.placements, self.ask_hosts()
        if troubles:
            hosts = [f"host {host} {wrong}" for host, wrong in troubles.items()]
            there = (placement.instance for placement in placements if placement.host in troubles)
            return some(hosts, _MOST_NAMES, "; "), next(there, 0), ""
        silent = self._silent()
        if not silent:
            return "all instances live, and wait", 0, "if they only need longer, raise --stall-timeout"
        names = [f"{placements[instance].host}:{instance}" for instance in silent]
        return f"{some(names, _MOST_NAMES)} stopped showing signs of life", silent[0], ""

    def _silent(self) -> List[int]:
        """The instances whose heartbeat is older than that of the others; those without one never started."""
        beats, joining = {}, set(self.joining())
        everyone = {placement.instance for placement in self.plan.placements}
        for instance in sorted(everyone - joining or everyone):
            try:
                beats[instance] = self.run.heartbeat(instance).stat().st_mtime
            except OSError:
                beats[instance] = 0.0
        newest = max(max(beats.values()), time.time() - _STALE_S)
        return [instance for instance, beat in beats.items() if newest - beat >= _STALE_S]
