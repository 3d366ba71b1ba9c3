"""The plan of a program of the user's own, which in a rehearsal comes as near to that on the POD as cores allow."""

from __future__ import annotations

import dataclasses

from ipulaunch.configs.messages import note
from ipulaunch.configs.settings.sections import Launch as LaunchSettings
from ipulaunch.configs.settings.sections import Training
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.registry import default_engine, engine_class
from ipulaunch.launcher.launch.planning import PROGRAM, UnnamedHosts, hosts_of_pod, plan_for, require_names
from ipulaunch.topology import Plan
from ipulaunch.topology.planning.solver import Solution


def plan_program(
    options: LaunchOptions, engine: Engine, launch: LaunchSettings, *, unnamed: UnnamedHosts = require_names
) -> Solution:
    """The plan of a user's own program."""
    engine.require_programs()
    origins = {} if launch.ipus_per_replica is None else {"launch.ipus_per_replica": "--ipus-per-replica"}
    solution = plan_for(PROGRAM, options, engine, launch, Training(), origins, unnamed=unnamed)
    if not engine.is_rehearsal or launch.num_instances is not None:
        return solution
    on_pod = _instances_on_pod(options, launch)
    here = _instances_here(on_pod, solution.plan)
    if here != solution.plan.instances:
        launch = dataclasses.replace(launch, num_instances=here)
        origins["launch.num_instances"] = "as on the POD" if here == on_pod else "as near to the POD as cores allow"
        solution = plan_for(PROGRAM, options, engine, launch, Training(), origins, unnamed=unnamed)
    if here == on_pod:
        return solution
    cores = counted(sum(placement.cores for placement in solution.plan.placements), "core")
    text = (
        f"on the POD the program has {counted(on_pod, 'instance')}, and in this rehearsal {here}, which share {cores}"
    )
    return solution._replace(messages=(*solution.messages, note(text)))


def _instances_on_pod(options: LaunchOptions, launch: LaunchSettings) -> int:
    """The instances of the same program on the POD and the hosts that come with it."""
    engine = engine_class(default_engine("ipu"))()
    elsewhere = options._replace(hosts=None, hostfile=None, host_layout=None)
    return plan_for(PROGRAM, elsewhere, engine, launch, Training(), {}, unnamed=hosts_of_pod).plan.instances


def _instances_here(on_pod: int, plan: Plan) -> int:
    """The most instances up to those of the POD that this many hosts and cores can have."""
    cores, hosts_here = sum(placement.cores for placement in plan.placements), len(plan.hosts)
    counts = range(hosts_here, min(on_pod, max(cores, hosts_here)) + 1, hosts_here)
    return max((count for count in counts if plan.replicas % count == 0), default=plan.instances)
