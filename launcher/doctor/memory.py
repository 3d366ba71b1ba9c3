"""Memory: how much there is for each instance, shared memory, and whether it can be bound to a NUMA node."""

from __future__ import annotations

import re
from typing import List

from ipulaunch.configs.text import counted
from ipulaunch.launcher.doctor.answers import Answer
from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import OK, POPRUN, WARNING, Check, amount
from ipulaunch.launcher.doctor.cores import GROUP
from ipulaunch.launcher.doctor.world import World
from ipulaunch.topology.machines.cgroups import tightest

_MIB, _GIB = 1 << 20, 1 << 30
_INSTANCE = _GIB  # TensorFlow alone takes 400 to 600 MiB
_SHARED_INSTANCE = 16 * _MIB  # what Open MPI maps for an instance
_SHARED_IPU = _GIB


def check_memory(case: Case, world: World) -> List[Check]:
    """Memory for the instances of this host, and /dev/shm between them."""
    return [_free(case, world), _shared(case, world)]


def _free(case: Case, world: World) -> Check:
    match = re.search(r"^MemAvailable:\s*(\d+) kB", world.read("proc/meminfo"), re.MULTILINE)
    limit = tightest("memory", "memory.max", "memory.limit_in_bytes", world.root)
    free = int(match.group(1)) * 1024 if match else None
    known = [size for size in (free, limit) if size is not None]
    if not known:
        return Check(GROUP, "memory", WARNING, "how much is free is not in /proc/meminfo", "is /proc mounted?")
    least = min(known)
    said = f"{amount(least)} free" if least == free else f"{amount(least)}, the limit of a cgroup"
    if least < case.instances * _INSTANCE:
        found = f"{said}, for {counted(case.instances, 'instance')}"
        return Check(
            GROUP, "memory", WARNING, found, f"an instance takes about {amount(_INSTANCE)}; use fewer, or more hosts"
        )
    return Check(GROUP, "memory", OK, said)


def _shared(case: Case, world: World) -> Check:
    name = "/dev/shm"
    try:
        space = world.space(world.root / "dev/shm")
    except OSError as error:
        fix = "mount a tmpfs on /dev/shm; in a container give --shm-size"
        return Check(GROUP, name, WARNING, f"cannot be looked at: {error.strerror}", fix)
    found = f"{amount(space.free)} of {amount(space.size)} free"
    need = case.instances * _SHARED_INSTANCE
    if case.engine == POPRUN:
        need = max(need, _SHARED_IPU)
    if space.free < need:
        fix = (
            f"make it larger, at least {amount(need)}: --shm-size of a container, an emptyDir of medium Memory in a Pod"
        )
        return Check(GROUP, name, WARNING, found, fix)
    return Check(GROUP, name, OK, found)


def check_policy(answer: Answer) -> Check:
    """Whether an instance may take its memory from its own NUMA node, as it tried."""
    name = "memory policy"
    if answer.error:
        return Check(GROUP, name, WARNING, answer.error, "without it, instances may use memory of other NUMA nodes")
    if answer.value.startswith(("nodes", "default")):
        return Check(GROUP, name, OK, f"permitted: {answer.value}")
    fix = "in a container allow set_mempolicy: --cap-add SYS_NICE; without it, memory may be on other NUMA nodes"
    return Check(GROUP, name, WARNING, answer.value, fix)
