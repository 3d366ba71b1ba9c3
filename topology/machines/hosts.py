"""Hosts, their NUMA nodes and cores: read from the kernel's text files, or made from a known layout."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import List, NamedTuple, Optional, Set, Tuple

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.pods import HostEntry
from ipulaunch.topology.machines import cpulist, hostlist

Core = Tuple[int, ...]  # the hardware threads of one physical core


class NumaNode(NamedTuple):
    """A memory controller and the cores next to it."""

    number: int
    cores: Tuple[Core, ...]


class Host(NamedTuple):
    """A machine that runs instances: its name, the cores we may use, and where we know them from."""

    name: str
    nodes: Tuple[NumaNode, ...]
    source: str  # "discovered", "like this machine", "--host-layout" or "catalogue"

    @property
    def cores(self) -> int:
        return sum(len(node.cores) for node in self.nodes)


def discover(name: str, root: Path = Path("/")) -> Host:
    """This machine, without the cores that the allowed CPU set and the cgroup quota exclude."""
    allowed = _allowed_cpus(root)
    nodes = []
    for directory in sorted(root.glob("sys/devices/system/node/node[0-9]*"), key=_index_of):
        cpus = [cpu for cpu in cpulist.parse(kernel_text(directory / "cpulist") or "") if cpu in allowed]
        if cpus:  # memory-only nodes exist and run nothing
            nodes.append(NumaNode(_index_of(directory), _cores(cpus, root)))
    if not nodes:  # kernels without NUMA support have no node directory
        nodes = [NumaNode(0, _cores(sorted(allowed), root))]
    return Host(name, _within_quota(nodes, _quota(root)), "discovered")


def is_here(name: str) -> bool:
    """Whether this is a name of the machine we run on."""
    own = os.uname().nodename
    return name in (hostlist.LOCALHOST, "127.0.0.1", own, own.split(".")[0])


def reference(name: str, layout: HostEntry, source: str) -> Host:
    """A host with a known layout; second threads are numbered after all first ones, as Linux does."""
    nodes, total = [], layout.numa_nodes * layout.cores_per_node
    for index in range(layout.numa_nodes):
        first = index * layout.cores_per_node
        cores = tuple(
            tuple(core + thread * total for thread in range(layout.threads_per_core))
            for core in range(first, first + layout.cores_per_node)
        )
        nodes.append(NumaNode(index, cores))
    return Host(name, tuple(nodes), source)


def named(host: Host, name: str) -> Host:
    """The same layout under another name."""
    return host._replace(name=name)


def parse_layout(text: str) -> HostEntry:
    """The layout in `NODESxCORES`, such as `8x16`."""
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text)
    if not match or 0 in map(int, match.groups()):
        raise UsageError(f"--host-layout {text!r} is not NODESxCORES", hint="8x16 is 8 NUMA nodes of 16 cores each")
    nodes, cores = map(int, match.groups())
    if nodes * cores > cpulist.MOST:
        raise UsageError(
            f"--host-layout {text} is a host of {nodes * cores} cores, and a plan has at most {cpulist.MOST}",
            hint="8x16 is 8 NUMA nodes of 16 cores each",
        )
    return HostEntry(numa_nodes=nodes, cores_per_node=cores, threads_per_core=1)


def _index_of(directory: Path) -> int:
    return int(re.sub(r"\D", "", directory.name))


def _allowed_cpus(root: Path) -> Set[int]:
    status = kernel_text(root / "proc/self/status") or ""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    if not match:
        raise NotReadyError("the CPUs this process may use are not in /proc/self/status", hint="ipulaunch needs Linux")
    return set(cpulist.parse(match.group(1)))


def _cores(cpus: List[int], root: Path) -> Tuple[Core, ...]:
    allowed, cores = set(cpus), []
    seen: Set[int] = set()
    for cpu in cpus:
        if cpu not in seen:
            siblings = kernel_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            threads = tuple(t for t in cpulist.parse(siblings or str(cpu)) if t in allowed)
            seen.update(threads)
            cores.append(threads)
    return tuple(cores)


def _quota(root: Path) -> Optional[float]:
    """How many CPUs the cgroups' time quotas allow: the tightest limit from our group up to the root."""
    found = [limit for limit in map(_limit, cgroup_places("cpu", root)) if limit]
    return min(found) if found else None


def _limit(group: Path) -> Optional[float]:
    maximum = kernel_text(group / "cpu.max")
    if maximum:
        quota, period = ([*maximum.split(), "100000"])[:2]
    else:
        quota = kernel_text(group / "cpu.cfs_quota_us") or "-1"
        period = kernel_text(group / "cpu.cfs_period_us") or "100000"
    return None if quota in ("max", "-1") else int(quota) / int(period)


def _within_quota(nodes: List[NumaNode], quota: Optional[float]) -> Tuple[NumaNode, ...]:
    """As many cores as the quota allows; the nodes with the most cores give up theirs first."""
    keep = {node.number: list(node.cores) for node in nodes}
    limit = math.inf if quota is None else max(1, math.floor(quota))
    while sum(map(len, keep.values())) > limit:
        largest = max(keep, key=lambda index: (len(keep[index]), index))
        keep[largest].pop()
    return tuple(NumaNode(index, tuple(cores)) for index, cores in keep.items() if cores)


def cgroup_places(controller: str, root: Path) -> List[Path]:
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


def tightest_limit(controller: str, name: str, old_name: str, root: Path) -> Optional[int]:
    """The smallest number in a file of these groups; old_name is the file's in version 1."""
    said = [
        kernel_text(place / name) or kernel_text(place / old_name) or "" for place in cgroup_places(controller, root)
    ]
    limits = [int(number) for number in said if number.isdecimal()]  # "max" means no limit
    return min(limits) if limits else None


def kernel_text(path: Path) -> Optional[str]:
    """The text of a kernel file; None if there is no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
