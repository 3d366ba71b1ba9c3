"""The settings that say what happens to a run that is stopped, hangs or fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

from ipulaunch.configs.settings.schema import setting

_SIGNALS = ("TERM", "USR1", "USR2", "HUP")


@dataclass(frozen=True)
class Survival:
    """How long the launcher waits, and how often it tries again."""

    grace_s: float = setting(
        60.0, "seconds that a run has to write its checkpoint when asked to stop", flag="--grace", at_least=0
    )
    stop_signals: Tuple[str, ...] = setting(
        ("TERM", "USR1", "USR2"),
        "signals to an instance that ask the run to stop with a checkpoint; the launcher takes all of them",
        choices=_SIGNALS,
    )
    stall_timeout_s: float = setting(
        1800.0, "seconds without progress after which a run is considered hung", flag="--stall-timeout", above=0
    )
    max_restarts: int = setting(
        0, "how many times a failed run is restarted from its newest checkpoint", flag="--max-restarts", at_least=0
    )
    restart_backoff_s: float = setting(
        5.0,
        "seconds before the first restart; doubled, up to 10 minutes, for each further one that makes no new update",
        at_least=0,
    )
    elastic_hosts: bool = setting(
        False,
        "leave out hosts that do not answer when restarting",
        flag="--elastic-hosts/--no-elastic-hosts",
    )
    max_preemptions: int = setting(
        100, "how many times a run may be preempted and ask to be started again", flag="--max-preemptions", at_least=0
    )
