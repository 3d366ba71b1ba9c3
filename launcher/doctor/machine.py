"""This machine: cores, memory, limits of the shell, ports and the clock, measured against the instances."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import List, Optional, Tuple

from ipulaunch.configs.errors import IpulaunchError
from ipulaunch.configs.text import counted
from ipulaunch.launcher.doctor.answers import Answer
from ipulaunch.launcher.doctor.diagnosis import MISSING, OK, WARNING, Check, Diagnosis, amount
from ipulaunch.launcher.doctor.environment import Environment
from ipulaunch.launcher.engines.engine import SDK
from ipulaunch.launcher.engines.registry import ENGINES, engine_class
from ipulaunch.topology.machines import cpulist, hosts
from ipulaunch.topology.machines.hosts import tightest_limit

GROUP = "this machine"
_MIB, _GIB = 1 << 20, 1 << 30
_INSTANCE = _GIB  # TensorFlow alone takes 400 to 600 MiB
_SHARED_INSTANCE = 16 * _MIB  # what Open MPI maps for an instance
_SHARED_IPU = _GIB
_FILES, _FILES_EACH = 64, 16  # of mpirun: its own, and pipes and sockets for an instance
_THREADS_EACH, _THREADS_PER_CORE = 40, 4  # of an instance: TensorFlow's pools
_LOCKED = 64 << 20  # with less, the IPUs' network cards cannot lock their buffers
_PORTS, _PORTS_EACH = 32, 8
_RANGE = "net.ipv4.ip_local_port_range"


def check_cores(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """The cores that the planner finds here, and whether the plan fits."""
    try:
        host = hosts.discover("here", environment.root)
    except (IpulaunchError, ValueError) as error:
        found = getattr(error, "message", "") or f"the kernel's list of CPUs cannot be read: {error}"
        return [Check(GROUP, "cores", MISSING, found, "ipulaunch needs Linux with /proc and /sys", ENGINES)]
    cpus = sorted(cpu for node in host.nodes for core in node.cores for cpu in core)
    nodes = counted(len(host.nodes), "NUMA node")
    found = f"{counted(host.cores, 'core')} on {nodes}: CPUs {cpulist.render(cpus)}"
    checks = [Check(GROUP, "cores", OK, found + _taken_away(len(cpus), environment))]
    if diagnosis.plan and diagnosis.instances > host.cores:
        found = f"{counted(diagnosis.instances, 'instance')} share {counted(host.cores, 'core')}"
        fix = "use fewer with --num-instances, or more hosts; results stay right on shared cores, but they are slow"
        checks.append(Check(GROUP, "instances", WARNING, found, fix))
    return checks


def _taken_away(usable: int, environment: Environment) -> str:
    """What keeps us from using the whole machine."""
    try:
        online = len(cpulist.parse(environment.read("sys/devices/system/cpu/online").strip()))
        allowed = len(cpulist.parse(_allowed(environment.read("proc/self/status"))))
    except (IpulaunchError, ValueError):
        return ""
    notes = [f"{allowed} of {online} CPUs are allowed"] if 0 < allowed < online else []
    notes += ["a cgroup limits CPU time"] if 0 < usable < allowed else []
    return f" ({'; '.join(notes)})" if notes else ""


def _allowed(status: str) -> str:
    lines = [line.split(":", 1)[1].strip() for line in status.splitlines() if line.startswith("Cpus_allowed_list:")]
    return lines[0] if lines else ""


def check_memory(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Memory for the instances of this host, and /dev/shm between them."""
    return [_free(diagnosis, environment), _shared(diagnosis, environment)]


def _free(diagnosis: Diagnosis, environment: Environment) -> Check:
    match = re.search(r"^MemAvailable:\s*(\d+) kB", environment.read("proc/meminfo"), re.MULTILINE)
    limit = tightest_limit("memory", "memory.max", "memory.limit_in_bytes", environment.root)
    free = int(match.group(1)) * 1024 if match else None
    known = [size for size in (free, limit) if size is not None]
    if not known:
        return Check(GROUP, "memory", WARNING, "/proc/meminfo does not say how much is free", "is /proc mounted?")
    least = min(known)
    said = f"{amount(least)} free" if least == free else f"{amount(least)}, the limit of a cgroup"
    if least < diagnosis.instances * _INSTANCE:
        found = f"{said}, for {counted(diagnosis.instances, 'instance')}"
        return Check(
            GROUP, "memory", WARNING, found, f"an instance takes about {amount(_INSTANCE)}; use fewer, or more hosts"
        )
    return Check(GROUP, "memory", OK, said)


def _shared(diagnosis: Diagnosis, environment: Environment) -> Check:
    name = "/dev/shm"
    try:
        space = environment.space(environment.root / "dev/shm")
    except OSError as error:
        fix = "mount a tmpfs on /dev/shm; in a container give --shm-size"
        return Check(GROUP, name, WARNING, f"cannot be checked: {error.strerror}", fix)
    found = f"{amount(space.free)} of {amount(space.size)} free"
    need = diagnosis.instances * _SHARED_INSTANCE
    if diagnosis.engine is not None and SDK in engine_class(diagnosis.engine).needs:
        need = max(need, _SHARED_IPU)
    if space.free < need:
        fix = (
            f"make it larger, at least {amount(need)}: --shm-size of a container, an emptyDir of medium Memory in a Pod"
        )
        return Check(GROUP, name, WARNING, found, fix)
    return Check(GROUP, name, OK, found)


def check_policy(answer: Answer) -> Check:
    """Whether an instance may bind its memory to its own NUMA node, as tried by its Python."""
    name = "memory policy"
    if answer.error:
        return Check(GROUP, name, WARNING, answer.error, "without it, instances may use memory of other NUMA nodes")
    if answer.value.startswith(("nodes", "default")):
        return Check(GROUP, name, OK, f"permitted: {answer.value}")
    fix = "in a container allow set_mempolicy: --cap-add SYS_NICE; without it, memory may be on other NUMA nodes"
    return Check(GROUP, name, WARNING, answer.value, fix)


def check_limits(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """The limits, compared with what the instances of this host need."""
    text = environment.read("proc/self/limits")
    checks = [_open_files(diagnosis, text), _processes(diagnosis, text, environment)]
    if diagnosis.examines(SDK):
        checks.append(_locked(text))
    return checks


def _open_files(diagnosis: Diagnosis, text: str) -> Check:
    soft, hard = _limit(text, "Max open files")
    need = _FILES + _FILES_EACH * diagnosis.instances
    found = f"at most {_count(soft)}"
    if soft is not None and soft < need:
        found += f", for {counted(diagnosis.instances, 'instance')}"
        can = hard is None or hard >= need
        fix = f"ulimit -n {need}" if can else f"ask for a hard limit of {need}; it is {_count(hard)}"
        return Check(GROUP, "open files", WARNING, found, fix)
    return Check(GROUP, "open files", OK, found)


def _processes(diagnosis: Diagnosis, text: str, environment: Environment) -> Check:
    shell, _ = _limit(text, "Max processes")
    group = tightest_limit("pids", "pids.max", "pids.max", environment.root)
    known = [limit for limit in (shell, group) if limit is not None]
    least = min(known) if known else None
    need = diagnosis.instances * (_THREADS_EACH + _THREADS_PER_CORE * diagnosis.cores)
    found = f"at most {_count(least)}"
    if least is not None and least < need:
        where = "the pids limit of the container" if least == group else "ulimit -u"
        found += f" threads and processes, and {counted(diagnosis.instances, 'instance')} take about {need}"
        return Check(GROUP, "processes", WARNING, found, f"raise {where} to {need} or more")
    return Check(GROUP, "processes", OK, found)


def _locked(text: str) -> Check:
    soft, _ = _limit(text, "Max locked memory")
    found = "no limit" if soft is None else f"at most {amount(soft)}"
    if soft is not None and soft < _LOCKED:
        fix = "for IPUs: ulimit -l unlimited; in a container the capability IPC_LOCK and --ulimit memlock=-1"
        return Check(GROUP, "locked memory", WARNING, found, fix)
    return Check(GROUP, "locked memory", OK, found)


def _limit(text: str, name: str) -> Tuple[Optional[int], Optional[int]]:
    """The soft and the hard limit; None means no limit, or an unknown one."""
    match = re.search(rf"^{name}\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    soft, hard = match.groups() if match else ("", "")
    return (int(soft) if soft.isdecimal() else None), (int(hard) if hard.isdecimal() else None)


def _count(limit: Optional[int]) -> str:
    return "as many as there is room for" if limit is None else str(limit)


def check_network(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Whether there are enough ports, and whether this machine can talk to itself."""
    return [_loopback(environment), *_ports(diagnosis, environment)]


def _loopback(environment: Environment) -> Check:
    why = environment.talk_to_self()
    if why:
        fix = "bring the loopback interface up (ip link set lo up), or allow it in the container's policy"
        return Check(GROUP, "loopback", MISSING, f"127.0.0.1 cannot be reached: {why}", fix, ENGINES)
    return Check(GROUP, "loopback", OK, "127.0.0.1 can be listened on and reached")


def _ports(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    words = environment.read("proc/sys/net/ipv4/ip_local_port_range").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return []  # a container without the file uses the host's range
    first, last = map(int, words)
    count, need = last - first + 1, _PORTS + _PORTS_EACH * diagnosis.instances
    found = f"{count} for outgoing connections: {first} to {last}"
    if count < need:
        return [Check(GROUP, "ports", WARNING, found, f"sysctl -w {_RANGE}='32768 60999' gives the usual ones")]
    return [Check(GROUP, "ports", OK, found)]


def check_clock(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Whether the clock is later than the time at which this file was written."""
    now = environment.clock()
    found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < Path(__file__).stat().st_mtime:
        fix = "set it, and keep it set with chrony or ntp"
        return [Check(GROUP, "clock", WARNING, f"{found} is before ipulaunch was installed", fix)]
    return [Check(GROUP, "clock", OK, found)]
