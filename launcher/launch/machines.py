"""The machines of a launch: the system, the names of its hosts, and the cores of a host."""

from __future__ import annotations

from typing import Callable, Tuple

from ipulaunch.configs.errors import PlanError, UsageError
from ipulaunch.configs.pods import Catalogue
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.topology.machines import hostlist, hosts, pods

LIKE_HERE = "like this machine"  # where the cores of other hosts come from, if nothing says otherwise
THIS_HOST = (hostlist.LOCALHOST,)

# The hosts to plan with where the user names none, for an engine and so many IPUs of a system.
UnnamedHosts = Callable[[Engine, pods.System, int], Tuple[str, ...]]


def system_of(options: LaunchOptions, catalogue: Catalogue) -> pods.System:
    """The system to plan for."""
    if options.pod is not None:
        return pods.find(options.pod, catalogue)
    if options.ipus is not None:
        return pods.of_size(options.ipus)
    raise UsageError("no system is named", hint="give --pod 16, or --ipus 2 for a part of one")


def named_hosts(options: LaunchOptions) -> Tuple[str, ...]:
    """The hosts that the user names; none where the user names none."""
    if options.hosts is not None and options.hostfile is not None:
        raise UsageError("--hosts and --hostfile are both given", hint="give one of them")
    if options.hosts is not None:
        return hostlist.parse(options.hosts)
    return hostlist.read_file(options.hostfile) if options.hostfile is not None else ()


def hosts_needed(system: pods.System, ipus: int) -> Tuple[int, str]:
    """The number of hosts that come with so many IPUs of a system, alone and in a sentence."""
    count = system.hosts_of(ipus)
    who = f"{system.name} needs" if ipus >= system.ipus else f"{ipus} IPUs of {system.name} need"
    if system.max_hosts is None:  # its name is the number of its IPUs
        who = f"{ipus} IPUs need"
    return count, f"{who} {counted(count, 'host')}"


def numbered_hosts(count: int) -> Tuple[str, ...]:
    """Names to plan with where nobody knows the names of the hosts."""
    return tuple(f"host{index}" for index in range(count)) if count > 1 else THIS_HOST


def require_names(engine: Engine, system: pods.System, ipus: int) -> Tuple[str, ...]:
    """This machine; refuses to plan for several hosts without their names."""
    count, need = hosts_needed(system, ipus)
    if engine.spreads_over_pod and count > 1:
        raise PlanError(f"{need}, and none are named", hint=f"give --hosts a,b or --hosts 'host[0-{count - 1}]'")
    return THIS_HOST


def hosts_of_pod(engine: Engine, system: pods.System, ipus: int) -> Tuple[str, ...]:
    """As many hosts as come with the IPUs, under numbers; for plans that nothing runs."""
    return numbered_hosts(system.hosts_of(ipus)) if engine.spreads_over_pod else THIS_HOST


def host_names(
    options: LaunchOptions, engine: Engine, system: pods.System, ipus: int, unnamed: UnnamedHosts
) -> Tuple[Tuple[str, ...], str]:
    """The hosts, and where their names come from."""
    names = named_hosts(options)
    if names:
        return names, "--hosts" if options.hosts is not None else "--hostfile"
    names = unnamed(engine, system, ipus)
    return names, "computed" if names == THIS_HOST else "catalogue"


def layout_of(options: LaunchOptions, engine: Engine, catalogue: Catalogue, names: Tuple[str, ...]) -> hosts.Host:
    """The cores of one host: as given, else as this machine has them if it runs something, else the catalogue's."""
    if options.host_layout is not None:
        return hosts.reference("", hosts.parse_layout(options.host_layout), "--host-layout")
    if engine.is_rehearsal or engine.is_here:
        here = hosts.discover("")
        return here if any(map(hosts.is_here, names)) else here._replace(source=LIKE_HERE)
    return hosts.reference("", catalogue.reference_host, "catalogue")
