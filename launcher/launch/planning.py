"""From launch options and the numbers that settings ask for to the plan, and where each number comes from."""

from __future__ import annotations

import dataclasses
from typing import Dict, Mapping

from ipulaunch.configs.messages import warning
from ipulaunch.configs.pods import read_catalogue
from ipulaunch.configs.settings.sections import Launch as LaunchSettings
from ipulaunch.configs.settings.sections import Training
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch import machines
from ipulaunch.launcher.launch.machines import UnnamedHosts
from ipulaunch.topology.machines import hosts
from ipulaunch.topology.planning.solver import Request, Solution, solve

PROGRAM = "program"  # the workload name of a user's own program


def plan_program(
    options: LaunchOptions, engine: Engine, launch: LaunchSettings, *, unnamed: UnnamedHosts = machines.require_names
) -> Solution:
    """The plan of a user's own program."""
    engine.require_programs()
    origins = {} if launch.ipus_per_replica is None else {"launch.ipus_per_replica": "--ipus-per-replica"}
    return plan_for(PROGRAM, options, engine, launch, Training(), origins, unnamed=unnamed)


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
    unnamed: UnnamedHosts = machines.require_names,
) -> Solution:
    """The plan of a workload or program."""
    catalogue = read_catalogue()
    system = machines.system_of(options, catalogue)
    depth = launch.ipus_per_replica or 1
    ipus = launch.num_replicas * depth if launch.num_replicas else options.ipus or system.ipus
    names, why_hosts = machines.host_names(options, engine, system, ipus, unnamed)
    instances = engine.instances(launch.num_instances, ipus, names)
    if instances != launch.num_instances:
        launch = dataclasses.replace(launch, num_instances=instances)
        origins = {**origins, "launch.num_instances": f"--engine {engine.name}"}
    layout = machines.layout_of(options, engine, catalogue, names)
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
    if layout.source != machines.LIKE_HERE:
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
