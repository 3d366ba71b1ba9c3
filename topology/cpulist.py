"""The kernel's way of writing sets of CPUs: `0-3,8`."""

from __future__ import annotations

from typing import Iterable, List, Set, Tuple

_LARGEST_CPU = 1 << 16


def parse(text: str) -> Tuple[int, ...]:
    """The CPUs of a list such as `0-3,8`, in ascending order."""
    cpus: Set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < _LARGEST_CPU:
            raise ValueError(f"{part!r} is not a range of CPUs")
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
