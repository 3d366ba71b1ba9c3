"""The kernel's way of writing sets of CPUs: `0-3,8`."""

from __future__ import annotations

import re
from typing import Iterable, List, Set, Tuple

MOST = 1 << 16  # CPUs of a host


def parse(text: str) -> Tuple[int, ...]:
    """The CPUs of a list such as `0-3,8`, in ascending order."""
    cpus: Set[int] = set()
    counted = 0
    for part in text.strip().split(","):
        if not part:
            continue
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high < MOST:
            raise ValueError(f"{part!r} is not a range of CPUs")
        counted += high - low + 1
        if counted > MOST:  # a long list of long ranges would take hours to expand
            raise ValueError(f"it names more than {MOST} CPUs")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def render(cpus: Iterable[int]) -> str:
    """The shortest list of ranges: (0, 1, 2, 8) is `0-2,8`."""
    ranges: List[List[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
