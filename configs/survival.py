"""The settings that say what becomes of a run that is stopped, hangs or fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from ipulaunch.configs.schema import setting

_SIGNALS = ("TERM", "USR1", "USR2", "HUP")


@dataclass(frozen=True)
class Survival:
    """How long the launcher waits, and how often it tries again."""

    grace_s: float = setting(
        60.0, "seconds a run that is asked to stop has for its checkpoint", flag="--grace", at_least=0
    )
    stop_signals: Tuple[str, ...] = setting(
        ("TERM", "USR1", "USR2"), "signals that ask a run to stop with a checkpoint", choices=_SIGNALS
    )
    stall_timeout_s: float = setting(
        1800.0, "seconds without a sign of progress after which a run counts as hung", flag="--stall-timeout", above=0
    )
    max_restarts: int = setting(
        0, "times a failed run is started again from its newest checkpoint", flag="--max-restarts", at_least=0
    )
    restart_backoff_s: float = setting(
        5.0, "seconds before the first restart; doubled for each further one", at_least=0
    )
