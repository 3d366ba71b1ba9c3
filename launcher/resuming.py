"""Continuing a run in its own directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Optional, Tuple

import click

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.job import Job, from_yaml
from ipulaunch.configs.run_directory import RunDirectory, write_whole
from ipulaunch.launcher.attempts import begin_again
from ipulaunch.launcher.display import Display
from ipulaunch.launcher.launch import Asked, Engine, choose_engine, launch_again, plan_for
from ipulaunch.launcher.running import attend, require
from ipulaunch.topology import Plan
from ipulaunch.topology.plan import from_json, to_json
from ipulaunch.topology.solver import Solution


def resume(path: Path, asked: Asked, num_instances: Optional[int], display: Display) -> int:
    """Continue a run to its end; returns its exit code."""
    run = RunDirectory(path.absolute())
    plan, job = _read(run)
    if all(run.done(placement.instance).exists() for placement in plan.placements):
        click.echo(f"{path} is done: there is nothing to resume", err=True)
        return 0
    engine = choose_engine(asked.engine or ("poprun" if job.backend == "ipu" else "openmpi"), dry_run=False)
    require(engine)
    if asked.hosts or asked.hostfile or asked.host_layout or num_instances:
        solution = _planned_again(plan, job, asked, num_instances, engine)
    else:
        solution = Solution(plan, (), (), ())
    job = begin_again(run, solution.plan, job._replace(backend=engine.backend))
    launch = launch_again(solution, job, asked, engine, run.path)
    write_whole(run.plan, to_json(solution.plan))
    return attend(launch, run, display)


def _read(run: RunDirectory) -> Tuple[Plan, Job]:
    try:
        plan = from_json(run.plan.read_text(encoding="utf-8"))
        return plan, from_yaml(run.job.read_text(encoding="utf-8"), str(run.job))
    except OSError as error:
        raise UsageError(
            f"{run.path} is not a run that can be resumed: {error.strerror}",
            hint="give the directory of a workload's run: runs/NAME",
        ) from error


def _planned_again(plan: Plan, job: Job, asked: Asked, num_instances: Optional[int], engine: Engine) -> Solution:
    """A plan for other hosts or instances, with the same replicas and batches."""
    settings = job.settings
    launch = dataclasses.replace(
        settings.launch,
        ipus_per_replica=plan.ipus_per_replica,
        num_replicas=plan.replicas,
        num_instances=num_instances,
    )
    training = dataclasses.replace(
        settings.training, gradient_accumulation_count=plan.batch.accumulation, global_batch_size=None
    )
    named = asked if asked.pod or asked.ipus else asked._replace(ipus=plan.ipus)
    solution = plan_for(job.workload, named, engine, launch, training, {})
    return solution._replace(plan=solution.plan._replace(system=plan.system))
