"""The control groups that this process is in, and the tightest of their limits."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional


def places(controller: str, root: Path) -> List[Path]:
    """The directories of our group and of its parents that hold a controller's limits."""
    found: List[Path] = []
    for line in (kernel_text(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or (parts[1] and controller not in parts[1].split(",")):
            continue
        mount = root / "sys/fs/cgroup"
        base = mount / controller if parts[1] else mount  # version 1 has a tree for each controller
        directory = base / parts[2].strip("/")
        # Inside a container the path is the host's; what is mounted here is our own group.
        found += [place for place in [directory, *directory.parents] if place == base or base in place.parents]
    return found


def tightest(controller: str, name: str, old_name: str, root: Path) -> Optional[int]:
    """The smallest number in a file of these groups; old_name is the file's in version 1."""
    said = [kernel_text(place / name) or kernel_text(place / old_name) or "" for place in places(controller, root)]
    limits = [int(number) for number in said if number.isdecimal()]  # "max" means no limit
    return min(limits) if limits else None


def kernel_text(path: Path) -> Optional[str]:
    """The text of a kernel file; None if there is no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
