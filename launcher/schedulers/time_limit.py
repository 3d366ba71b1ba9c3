"""Time limits, as users write them and as schedulers expect them."""

from __future__ import annotations

import re
from typing import Tuple

from ipulaunch.configs.errors import UsageError


def seconds(text: str) -> int:
    """The seconds in `90` (minutes), `12:00:00` or `1-12:00:00`."""
    match = re.fullmatch(r"(?:(\d{1,3})-)?(\d{1,4}):([0-5]\d):([0-5]\d)", text, re.ASCII)
    if match:
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif re.fullmatch(r"\d{1,6}", text, re.ASCII):
        total = int(text) * 60
    else:
        two = ", which Slurm reads as minutes and seconds, and PBS as hours and minutes" if text.count(":") == 1 else ""
        raise UsageError(f"--time {text!r} is not a limit{two}", hint="write minutes (90), 12:00:00 or 1-12:00:00")
    if not total:
        raise UsageError(f"--time {text!r} leaves no time", hint="write minutes (90), 12:00:00 or 1-12:00:00")
    return total


def for_slurm(total: int) -> str:
    """Days and hours, as Slurm shows them."""
    days, rest = divmod(total, 86400)
    hours, minutes, left = _parts(rest)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{left:02}"


def for_pbs(total: int) -> str:
    """Hours without days, which PBS does not have."""
    hours, minutes, left = _parts(total)
    return f"{hours:02}:{minutes:02}:{left:02}"


def _parts(total: int) -> Tuple[int, int, int]:
    return total // 3600, total % 3600 // 60, total % 60
