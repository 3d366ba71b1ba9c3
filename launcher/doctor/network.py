"""The network inside this machine: ports for the instances to meet on."""

from __future__ import annotations

from typing import List

from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import BOTH, MISSING, OK, WARNING, Check
from ipulaunch.launcher.doctor.cores import GROUP
from ipulaunch.launcher.doctor.world import World

_PORTS, _PORTS_EACH = 32, 8
_RANGE = "net.ipv4.ip_local_port_range"


def check_network(case: Case, world: World) -> List[Check]:
    """Whether there are ports enough, and whether this machine can talk to itself."""
    return [_loopback(world), *_ports(case, world)]


def _loopback(world: World) -> Check:
    why = world.talk_to_self()
    if why:
        fix = "bring the loopback interface up (ip link set lo up), or allow it in the container's policy"
        return Check(GROUP, "loopback", MISSING, f"127.0.0.1 cannot be reached: {why}", fix, BOTH)
    return Check(GROUP, "loopback", OK, "127.0.0.1 can be listened on and reached")


def _ports(case: Case, world: World) -> List[Check]:
    words = world.read("proc/sys/net/ipv4/ip_local_port_range").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return []  # a container that hides it has the host's
    first, last = map(int, words)
    count, need = last - first + 1, _PORTS + _PORTS_EACH * case.instances
    found = f"{count} for outgoing connections: {first} to {last}"
    if count < need:
        return [Check(GROUP, "ports", WARNING, found, f"sysctl -w {_RANGE}='32768 60999' gives the usual ones")]
    return [Check(GROUP, "ports", OK, found)]
