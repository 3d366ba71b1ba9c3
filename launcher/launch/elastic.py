"""The same training on other hosts: planned again with the same replicas and the same global batches."""

from __future__ import annotations

import dataclasses
from typing import Collection, Optional

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.pods import read_catalogue
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.text import counted
from ipulaunch.launcher.launch.launch import Launch, launch_again
from ipulaunch.launcher.launch.launch_options import Asked, Engine
from ipulaunch.launcher.launch.planning import plan_for, system_of
from ipulaunch.launcher.supervise.attempts import begin_again
from ipulaunch.topology import Plan
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.planning.solver import Solution


def planned_again(plan: Plan, job: Job, asked: Asked, num_instances: Optional[int], engine: Engine) -> Solution:
    """Another plan for a run, with the same replicas and batches; where no hosts are asked for, on the same ones."""
    settings = job.settings
    if asked.hosts is None and asked.hostfile is None and not plan.is_on_this_host:
        asked = asked._replace(hosts=hostlist.render(plan.hosts))
    launch = dataclasses.replace(
        settings.launch,
        ipus_per_replica=plan.ipus_per_replica,
        num_replicas=plan.replicas,
        num_instances=num_instances,
    )
    training = dataclasses.replace(
        settings.training, gradient_accumulation_count=plan.batch.accumulation, global_batch_size=None
    )
    if asked.pod or asked.ipus:
        _require_room(plan, asked)
        return plan_for(job.workload, asked, engine, launch, training, {})
    solution = plan_for(job.workload, asked._replace(ipus=plan.ipus), engine, launch, training, {})
    return solution._replace(plan=solution.plan._replace(system=plan.system))


def _require_room(plan: Plan, asked: Asked) -> None:
    system = system_of(asked, read_catalogue())
    room = min(system.ipus, asked.ipus or system.ipus)
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
        asked = launch.asked._replace(hosts=hostlist.render(left[:count]), hostfile=None)
        try:
            return planned_again(plan, launch.job, asked, count * plan.instances_per_host, launch.engine)
        except PlanError:  # so many hosts do not divide the replicas
            continue
    return None


def begin_again_on(solution: Solution, launch: Launch, run: RunDirectory) -> Launch:
    """Make the run ready for another attempt, with a plan of its own."""
    assert launch.job is not None
    job = begin_again(run, solution.plan, launch.job)
    return launch_again(solution, job, launch.asked, launch.engine, run.path)
