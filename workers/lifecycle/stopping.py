"""Stopping on request: all instances at the same update, with a checkpoint."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Optional

import numpy as np

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.workers.backends.collective import Collective

_LOOK_INTERVAL_S = 0.1  # a look at a file on a network disk is not free


class StopRequest:
    """Whether someone has asked the run to stop: with a file in the run directory, or a signal to an instance."""

    def __init__(self, run: RunDirectory, index: int, collective: Collective) -> None:
        self.run, self.index, self.collective = run, index, collective
        self.is_asked = False
        self.last_look = 0.0

    def listen(self, *numbers: signal.Signals) -> None:
        """Take these signals as requests."""
        for number in numbers:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        self.is_asked = True

    def agreed(self) -> bool:
        """Whether any instance was asked; the same answer on all, which ask together."""
        now = time.monotonic()
        if self.index == 0 and now - self.last_look >= _LOOK_INTERVAL_S:
            self.last_look = now
            self.is_asked = self.is_asked or self.run.stop.exists()
        return bool(self.collective.sum(np.array([float(self.is_asked)]))[0])
