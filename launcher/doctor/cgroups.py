"""Limits of the control groups that this process is in."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import List, Optional

from ipulaunch.launcher.doctor.world import World

_MOUNT = PurePosixPath("sys/fs/cgroup")


def tightest(world: World, controller: str, name: str, old_name: str) -> Optional[int]:
    """The smallest number in a file of our group and of those around it; old_name is the file's in version 1."""
    limits: List[int] = []
    for line in world.read("proc/self/cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or (parts[1] and controller not in parts[1].split(",")):
            continue
        base = _MOUNT / controller if parts[1] else _MOUNT
        directory = base / parts[2].strip("/")
        # Inside a container the path is the host's; what is mounted here is our own group.
        for place in [directory, *directory.parents]:
            if place == base or base in place.parents:
                text = world.read(str(place / (old_name if parts[1] else name))).strip()
                limits += [int(text)] if text.isdecimal() else []  # "max" is none
    return min(limits) if limits else None
