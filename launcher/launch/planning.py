"""From what was asked to the plan: the system, its hosts and their cores, and where each number came from."""

from __future__ import annotations

import dataclasses
import os
from typing import Dict, Mapping, NamedTuple, Tuple

from ipulaunch.configs.errors import PlanError, SettingsError, UsageError
from ipulaunch.configs.pods import Catalogue, HostEntry, read_catalogue
from ipulaunch.configs.settings.sections import Launch as LaunchSettings
from ipulaunch.configs.settings.sections import Training
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.direct import require_one_process
from ipulaunch.launcher.launch.examination import Findings, examine
from ipulaunch.launcher.launch.launch_options import Asked, Engine
from ipulaunch.topology.machines import hostlist, hosts, pods
from ipulaunch.topology.planning.pipelines import check_pipeline
from ipulaunch.topology.planning.sdk_refusals import refuse_before
from ipulaunch.topology.planning.solver import Request, Solution, solve

PROGRAM = "program"  # the workload name of a user's own program
_LIKE_HERE = "like this machine"  # where the cores of hosts that are elsewhere come from, if nothing says otherwise


class Planned(NamedTuple):
    """The plan of a workload, and what its settings mean under it; the warnings of both are with the solution."""

    solution: Solution
    findings: Findings


def plan_workload(resolved: Resolved, asked: Asked, engine: Engine, *, hosts_need_names: bool = True) -> Planned:
    """The plan of a workload, examined; the IPUs of a replica follow from its pipeline stages."""
    settings, origins = resolved.settings, dict(resolved.origins)
    check_pipeline(settings)
    if engine.backend == "ipu":
        refuse_before(settings, lambda: asked.sdk or discovery.sdk_here(os.environ))
    if settings.launch.ipus_per_replica is None and settings.pipeline.splits:
        origins["launch.ipus_per_replica"] = origins["pipeline.splits"]
    launch = dataclasses.replace(settings.launch, ipus_per_replica=settings.ipus_per_replica)
    if not settings.training.training and launch.validation_num_replicas is not None:
        if launch.num_replicas not in (None, launch.validation_num_replicas):
            raise SettingsError(
                f"{launch.num_replicas} replicas are asked for, and {launch.validation_num_replicas} to validate with:"
                " without training there are no others",
                hint="leave --num-replicas out",
            )
        launch = dataclasses.replace(launch, num_replicas=launch.validation_num_replicas)
        origins["launch.num_replicas"] = origins["launch.validation_num_replicas"]
    if asked.pod is None and asked.ipus is None and (launch.single or launch.num_replicas):
        asked = asked._replace(ipus=(launch.num_replicas or 1) * settings.ipus_per_replica)
        origins["ipus"] = "computed"
    solution = plan_for(
        resolved.workload,
        asked,
        engine,
        launch,
        settings.training,
        origins,
        micro_batches_per_turn=settings.micro_batches_per_turn,
        least_accumulation=settings.least_accumulation,
        hosts_need_names=hosts_need_names,
    )
    findings = examine(resolved, solution.plan, engine.backend)
    return Planned(solution._replace(warnings=(*solution.warnings, *findings.warnings)), findings)


def plan_program(asked: Asked, engine: Engine, launch: LaunchSettings, *, hosts_need_names: bool = True) -> Solution:
    """The plan of a user's own program."""
    if engine.name == "direct":
        raise UsageError(
            "--engine direct is for workloads: a program of your own learns its replicas from PopDist",
            hint="use --engine poprun, or start the program as it is",
        )
    origins = {} if launch.ipus_per_replica is None else {"launch.ipus_per_replica": "--ipus-per-replica"}
    return plan_for(PROGRAM, asked, engine, launch, Training(), origins, hosts_need_names=hosts_need_names)


def plan_for(
    workload: str,
    asked: Asked,
    engine: Engine,
    launch: LaunchSettings,
    training: Training,
    origins: Mapping[str, str],
    *,
    micro_batches_per_turn: int = 1,
    least_accumulation: int = 1,
    hosts_need_names: bool = True,
) -> Solution:
    """The plan of a workload or program on the system that was asked for."""
    catalogue = read_catalogue()
    system = system_of(asked, catalogue)
    depth = launch.ipus_per_replica or 1
    ipus = launch.num_replicas * depth if launch.num_replicas else asked.ipus or system.ipus
    if engine.name == "direct":
        launch, origins = _in_one_process(asked, launch, origins, ipus)
    names, why_hosts = _host_names(asked, engine, system, ipus, hosts_need_names)
    layout = _layout(asked, engine, catalogue, names)
    solution = solve(
        Request(
            workload=workload,
            system=system,
            hosts=tuple(hosts.named(layout, name) for name in names),
            ipus_per_replica=depth,
            replicas=launch.num_replicas,
            instances=launch.num_instances,
            ilds=asked.ilds,
            ipus=asked.ipus,
            io_bound=launch.io_bound,
            min_cores_per_instance=launch.min_cores_per_instance,
            micro_batch_size=training.micro_batch_size,
            accumulation=training.gradient_accumulation_count,
            global_batch_size=training.global_batch_size,
            micro_batches_per_turn=micro_batches_per_turn,
            least_accumulation=least_accumulation,
            oversubscribe=asked.oversubscribe,
            is_rehearsal=engine.name == "openmpi",
            has_stages=workload != PROGRAM,
            origins=_origins(asked, launch, training, origins, why_hosts),
        )
    )
    if layout.source != _LIKE_HERE:
        return solution
    cores = counted(layout.cores, "core")
    warning = f"the hosts are taken to be like this machine ({cores}); --host-layout says what they have"
    return solution._replace(warnings=(*solution.warnings, warning))


def _in_one_process(
    asked: Asked, launch: LaunchSettings, origins: Mapping[str, str], ipus: int
) -> Tuple[LaunchSettings, Mapping[str, str]]:
    """The launch as one instance on this machine, and where that comes from."""
    require_one_process(launch.num_instances or 1, ipus)
    names = named_hosts(asked)
    if len(names) > 1 or not all(map(hosts.is_here, names)):
        raise PlanError(
            f"{counted(len(names), 'host')} named ({hostlist.render(names)}), and --engine direct starts 1 process"
            " on this machine",
            hint="leave --hosts out, or use --engine poprun",
        )
    if launch.num_instances is not None:
        return launch, origins
    return dataclasses.replace(launch, num_instances=1), {**origins, "launch.num_instances": "--engine direct"}


def system_of(asked: Asked, catalogue: Catalogue) -> pods.System:
    """The system that was asked for."""
    if asked.pod is not None:
        return pods.find(asked.pod, catalogue)
    if asked.ipus is not None:
        return pods.of_size(asked.ipus)
    raise UsageError("no system is named", hint="give --pod 16, or --ipus 2 for a part of one")


def hosts_needed(system: pods.System, ipus: int) -> Tuple[int, str]:
    """The hosts that come with so many IPUs of a system, and how that is said."""
    count = system.hosts_of(ipus)
    who = f"{system.name} needs" if ipus >= system.ipus else f"{ipus} IPUs of {system.name} need"
    if system.max_hosts is None:  # it is called after its IPUs
        who = f"{ipus} IPUs need"
    return count, f"{who} {counted(count, 'host')}"


def named_hosts(asked: Asked) -> Tuple[str, ...]:
    """The hosts that were asked for by name; none where none were."""
    if asked.hosts is not None and asked.hostfile is not None:
        raise UsageError("--hosts and --hostfile are both given", hint="give one of them")
    if asked.hosts is not None:
        return hostlist.parse(asked.hosts)
    return hostlist.read_file(asked.hostfile) if asked.hostfile is not None else ()


def _host_names(
    asked: Asked, engine: Engine, system: pods.System, ipus: int, need_names: bool
) -> Tuple[Tuple[str, ...], str]:
    """The hosts, and where their names come from: as given, else those that come with so many IPUs of the system."""
    names = named_hosts(asked)
    count, need = hosts_needed(system, ipus)
    if names:
        return names, "--hosts" if asked.hosts is not None else "--hostfile"
    if engine.name != "poprun" or count == 1:
        return (hostlist.LOCALHOST,), "computed"
    if need_names:
        raise PlanError(f"{need}, and none are named", hint=f"give --hosts a,b or --hosts 'host[0-{count - 1}]'")
    return tuple(f"host{index}" for index in range(count)), "catalogue"


def _layout(asked: Asked, engine: Engine, catalogue: Catalogue, names: Tuple[str, ...]) -> hosts.Host:
    """The cores of one host: as given, as found here when this machine is to run it, else as the catalogue has it."""
    if asked.host_layout is not None:
        return hosts.reference("", hosts.parse_layout(asked.host_layout), "--host-layout")
    if engine.name == "openmpi" or engine.is_here:
        here = hosts.discover("")
        return here if any(map(hosts.is_here, names)) else here._replace(source=_LIKE_HERE)
    reference: HostEntry = catalogue.reference_host
    return hosts.reference("", reference, "catalogue")


def _origins(
    asked: Asked, launch: LaunchSettings, training: Training, origins: Mapping[str, str], hosts_origin: str
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
    if asked.ilds is not None:
        given["ilds"] = "--num-ilds"
    if asked.ipus is not None:
        given["ipus"] = origins.get("ipus", "--ipus")
    return given
