"""How the time of an instance is divided, and when it is worth a word that it waits for its data."""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping

from ipulaunch.configs.runs.event_fields import are_durations

# What an instance does; every moment counts for one of them.
PARTS = ("data", "device", "reduction", "logging", "checkpoint", "validation", "other")
_WORTH_TELLING = 0.1


def waiting_share(seconds: Mapping[str, float]) -> float:
    """The part of a training's time, its validation apart, in which an instance waited for data."""
    training = sum(seconds.values()) - seconds.get("validation", 0.0)
    return min(1.0, seconds.get("data", 0.0) / training) if training > 0 else 0.0


def longest_wait(by_instance: Iterable[Mapping[str, float]]) -> float:
    """The share of the instance that waits longest: updates take all instances together, so it holds up the others."""
    return max(map(waiting_share, by_instance), default=0.0)


def times_in(summary: Mapping[str, Any]) -> List[Mapping[str, float]]:
    """The seconds of each part, by instance, in the summary of a run; those of earlier versions have none."""
    rows = summary.get("times_s_by_instance")
    return [row for row in rows if are_durations(row)] if isinstance(rows, list) else []


def waiting_text(share: float) -> str:
    """What people are told: nothing for less than a tenth of the time."""
    return f"waiting for data {share:.0%}".replace("%", " %") if share >= _WORTH_TELLING else ""
