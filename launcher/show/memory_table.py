"""The memory of IPUs, part by part, as a table."""

from __future__ import annotations

from typing import List, Sequence

from ipulaunch.launcher.show.picture import table
from ipulaunch.topology.capacity.memory import IpuMemory
from ipulaunch.topology.capacity.ranges import Range


def memory_table(memory: Sequence[IpuMemory]) -> str:
    """A row for each IPU of a replica and each program, in megabytes."""
    names = list(dict.fromkeys(name for each in memory for name in each.parts))
    head = ["MB", "IPU", "stages", *names, "in all", "of", ""]
    return table([head, *(_row(each, names) for each in memory)])


def _row(memory: IpuMemory, names: Sequence[str]) -> List[str]:
    first, last = memory.stages[0], memory.stages[-1]
    stages = f"{first}" if first == last else f"{first}-{last}"
    parts = [_size(memory.parts[name]) if name in memory.parts else "-" for name in names]
    limit = f"{memory.limit / 1e6:.0f}"
    return [memory.program, f"{memory.ipu}", stages, *parts, _size(memory.bytes), limit, memory.verdict]


def _size(size: Range) -> str:
    low, high = f"{size.low / 1e6:.0f}", f"{size.high / 1e6:.0f}"
    return low if low == high else f"{low}-{high}"
