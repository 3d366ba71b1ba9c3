"""The cores that instances can have: NUMA nodes, the allowed CPUs, and what a cgroup takes away."""

from __future__ import annotations

from typing import List

from ipulaunch.configs.errors import IpulaunchError
from ipulaunch.configs.text import counted
from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import BOTH, MISSING, OK, WARNING, Check
from ipulaunch.launcher.doctor.world import World
from ipulaunch.topology.machines import cpulist, hosts

GROUP = "this machine"


def check_cores(case: Case, world: World) -> List[Check]:
    """What the planner would find here, and whether the plan fits."""
    try:
        host = hosts.discover("here", world.root)
    except (IpulaunchError, ValueError) as error:
        found = getattr(error, "message", "") or f"the kernel's list of CPUs cannot be read: {error}"
        return [Check(GROUP, "cores", MISSING, found, "ipulaunch needs Linux with /proc and /sys", BOTH)]
    cpus = sorted(cpu for node in host.nodes for core in node.cores for cpu in core)
    nodes = counted(len(host.nodes), "NUMA node")
    found = f"{counted(host.cores, 'core')} on {nodes}: CPUs {cpulist.render(cpus)}"
    checks = [Check(GROUP, "cores", OK, found + _taken_away(len(cpus), world))]
    if case.plan and case.instances > host.cores:
        found = f"{counted(case.instances, 'instance')} share {counted(host.cores, 'core')}"
        fix = "use fewer with --num-instances, or more hosts; shared cores are slow, and right"
        checks.append(Check(GROUP, "instances", WARNING, found, fix))
    return checks


def _taken_away(usable: int, world: World) -> str:
    """What stands between us and the whole machine."""
    try:
        online = len(cpulist.parse(world.read("sys/devices/system/cpu/online").strip()))
        allowed = len(cpulist.parse(_allowed(world.read("proc/self/status"))))
    except (IpulaunchError, ValueError):
        return ""
    notes = [f"{allowed} of {online} CPUs are allowed"] if 0 < allowed < online else []
    notes += ["a cgroup limits CPU time"] if 0 < usable < allowed else []
    return f" ({'; '.join(notes)})" if notes else ""


def _allowed(status: str) -> str:
    lines = [line.split(":", 1)[1].strip() for line in status.splitlines() if line.startswith("Cpus_allowed_list:")]
    return lines[0] if lines else ""
