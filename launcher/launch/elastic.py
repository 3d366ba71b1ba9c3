"""The same training on other hosts: planned again with the same replicas and the same global batches."""

from __future__ import annotations

import dataclasses
from typing import Collection, Optional

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.pods import read_catalogue
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.sections import Launch as LaunchSettings
from ipulaunch.configs.settings.sections import Training
from ipulaunch.configs.text import counted
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.launch.planning import plan_for, system_of
from ipulaunch.topology import Plan
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.planning.solver import Solution


def replan(
    plan: Plan,
    job: Optional[Job],
    given: LaunchOptions,
    options: LaunchOptions,
    num_instances: Optional[int],
    engine: Engine,
) -> Solution:
    """The plan to continue a run with: its own, unless options that are `given` now say where it runs.

    The run of a user's own program has no job.
    """
    moves = given.hosts or given.hostfile or given.host_layout
    if not (moves or num_instances or given.pod or given.ipus or given.ilds or given.oversubscribe):
        return Solution(plan)
    return planned_again(plan, job, options, num_instances or (None if moves else plan.instances), engine)


def planned_again(
    plan: Plan, job: Optional[Job], options: LaunchOptions, num_instances: Optional[int], engine: Engine
) -> Solution:
    """Another plan for a run, with the same replicas and batches; where no hosts are asked for, on the same ones."""
    if options.hosts is None and options.hostfile is None and not plan.is_on_this_host:
        options = options._replace(hosts=hostlist.render(plan.hosts))
    launch = dataclasses.replace(
        job.settings.launch if job is not None else LaunchSettings(),
        ipus_per_replica=plan.ipus_per_replica,
        num_replicas=plan.replicas,
        num_instances=num_instances,
    )
    training = dataclasses.replace(
        job.settings.training if job is not None else Training(),
        gradient_accumulation_count=plan.batch.accumulation,
        global_batch_size=None,
    )
    if options.pod or options.ipus:
        _require_room(plan, options)
        return plan_for(plan.workload, options, engine, launch, training, {})
    solution = plan_for(plan.workload, options._replace(ipus=plan.ipus), engine, launch, training, {})
    return solution._replace(plan=solution.plan._replace(system=plan.system))


def _require_room(plan: Plan, options: LaunchOptions) -> None:
    system = system_of(options, read_catalogue())
    room = min(system.ipus, options.ipus or system.ipus)
    if room < plan.ipus:
        replicas = f"{counted(plan.replicas, 'replica')} x {counted(plan.ipus_per_replica, 'IPU')}"
        raise PlanError(
            f"the run has {replicas} = {counted(plan.ipus, 'IPU')}, and would continue with {room}",
            hint="the replicas of a run never change: leave --pod and --ipus out, or give it as many IPUs",
        )


def planned_without(launch: Launch, missing: Collection[str]) -> Optional[Solution]:
    """The plan on the hosts that are left, as many of them as divide the replicas; None where none is left.

    Every host keeps as many instances as it had.
    """
    assert launch.job is not None
    plan = launch.solution.plan
    left = [host for host in plan.hosts if host not in missing]
    for count in range(len(left), 0, -1):
        options = launch.options._replace(hosts=hostlist.render(left[:count]), hostfile=None)
        try:
            return planned_again(plan, launch.job, options, count * plan.instances_per_host, launch.engine)
        except PlanError:  # so many hosts do not divide the replicas
            continue
    return None
