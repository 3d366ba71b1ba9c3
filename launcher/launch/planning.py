"""From launch options and the numbers of the settings to the machines and the plan, and where each comes from."""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, Mapping, Tuple

from ipulaunch.configs.errors import PlanError, UsageError
from ipulaunch.configs.messages import warning
from ipulaunch.configs.pods import Catalogue, read_catalogue
from ipulaunch.configs.settings.sections import Launch as LaunchSettings
from ipulaunch.configs.settings.sections import Training
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.topology.machines import hostlist, hosts, pods
from ipulaunch.topology.planning.solver import Request, Solution, solve

LIKE_HERE = "like this machine"  # where the cores of other hosts come from, if nothing says otherwise
THIS_HOST = (hostlist.LOCALHOST,)

# The hosts to plan with where the user names none, for an engine and so many IPUs of a system.
UnnamedHosts = Callable[[Engine, pods.System, int], Tuple[str, ...]]
PROGRAM = "program"  # the workload name of a user's own program


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


def plan_system(options: LaunchOptions, engine: Engine) -> Solution:
    """The plan of whatever may run on a system."""
    return plan_for("any workload", options, engine, LaunchSettings(), Training(), {})


def plan_for(
    workload: str,
    options: LaunchOptions,
    engine: Engine,
    launch: LaunchSettings,
    training: Training,
    origins: Mapping[str, str],
    *,
    micro_batches_per_turn: int = 1,
    least_accumulation: int = 1,
    unnamed: UnnamedHosts = require_names,
) -> Solution:
    """The plan of a workload or program."""
    catalogue = read_catalogue()
    system = system_of(options, catalogue)
    depth = launch.ipus_per_replica or 1
    ipus = launch.num_replicas * depth if launch.num_replicas else options.ipus or system.ipus
    names, why_hosts = host_names(options, engine, system, ipus, unnamed)
    instances = engine.instances(launch.num_instances, ipus, names)
    if instances != launch.num_instances:
        launch = dataclasses.replace(launch, num_instances=instances)
        origins = {**origins, "launch.num_instances": f"--engine {engine.name}"}
    layout = layout_of(options, engine, catalogue, names)
    solution = solve(
        Request(
            workload=workload,
            system=system,
            hosts=tuple(hosts.named(layout, name) for name in names),
            ipus_per_replica=depth,
            replicas=launch.num_replicas,
            instances=launch.num_instances,
            ilds=options.ilds,
            ipus=options.ipus,
            io_bound=launch.io_bound,
            min_cores_per_instance=launch.min_cores_per_instance,
            micro_batch_size=training.micro_batch_size,
            accumulation=training.gradient_accumulation_count,
            global_batch_size=training.global_batch_size,
            micro_batches_per_turn=micro_batches_per_turn,
            least_accumulation=least_accumulation,
            oversubscribe=options.oversubscribe,
            is_rehearsal=engine.is_rehearsal,
            has_stages=workload != PROGRAM,
            origins=_origins(options, launch, training, origins, why_hosts),
        )
    )
    if layout.source != LIKE_HERE:
        return solution
    cores = counted(layout.cores, "core")
    text = f"the hosts are taken to be like this machine ({cores}); --host-layout says what they have"
    return solution._replace(messages=(*solution.messages, warning(text)))


def _origins(
    options: LaunchOptions, launch: LaunchSettings, training: Training, origins: Mapping[str, str], hosts_origin: str
) -> Dict[str, str]:
    """Where the solver's wishes came from, under the solver's names."""
    given = {
        "ipus_per_replica": origins.get("launch.ipus_per_replica", "default"),
        "micro_batch_size": origins.get("training.micro_batch_size", "default"),
        "hosts": hosts_origin,
    }
    if launch.num_replicas is not None:
        given["replicas"] = origins.get("launch.num_replicas", "--num-replicas")
    if launch.num_instances is not None:
        given["instances"] = origins.get("launch.num_instances", "--num-instances")
    if training.gradient_accumulation_count is not None:
        given["accumulation"] = origins.get("training.gradient_accumulation_count", "--gradient-accumulation-count")
    if training.global_batch_size is not None:
        given["global_batch_size"] = origins.get("training.global_batch_size", "--global-batch-size")
    if options.ilds is not None:
        given["ilds"] = "--num-ilds"
    if options.ipus is not None:
        given["ipus"] = origins.get("ipus", "--ipus")
    return given
