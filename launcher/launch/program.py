"""A program of the user's own, and what happens when it fails or is asked to stop."""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

from ipulaunch.configs.settings.sections import Survival
from ipulaunch.configs.settings.tree import ATTEMPT

# What of Survival is for programs too: they have no heartbeat, and no settings that say how they stop.
OF_PROGRAMS = ("max_restarts", "restart_backoff_s", "grace_s", "max_preemptions")


class Program(NamedTuple):
    """The words of a program, and how long and how often it is tried."""

    words: Tuple[str, ...]
    survival: Survival = Survival()

    def told(self, attempt: int) -> Dict[str, str]:
        """The variables that tell it which of its attempts this is."""
        return {ATTEMPT: str(attempt)}
