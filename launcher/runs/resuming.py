"""Continuing a run in its own directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Tuple

import click

from ipulaunch.configs.errors import DataError, PlanError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory, records_of, writable
from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.registry import choose_engine, default_engine
from ipulaunch.launcher.launch import launch_record
from ipulaunch.launcher.launch.elastic import begin_again_on, planned_again
from ipulaunch.launcher.launch.launch import launch_again
from ipulaunch.launcher.launch.other_hosts import require_other_hosts
from ipulaunch.launcher.runs.claim import claim
from ipulaunch.launcher.runs.states import how_to_end, statuses
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.scheduler import ENDING, RUNNING, WAITING
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise.attempts import lost_checkpoint
from ipulaunch.launcher.supervise.running import attend, write_decided
from ipulaunch.launcher.supervise.stop_signals import StopSignals
from ipulaunch.topology import Plan
from ipulaunch.topology.planning.plan import from_json
from ipulaunch.topology.planning.solver import Solution

_SUBMITS = {"slurm": "sbatch", "pbs": "qsub"}  # a script that lies here; Pods have the run on their volume


def resume(path: Path, given: LaunchOptions, num_instances: Optional[int], display: Display) -> int:
    """Continue a run to its end, launched as it was but for what is given now; returns its exit code."""
    _require_ended(path)
    run = records_of(path)
    plan, job = _read(run)
    if all(run.done(placement.instance).exists() for placement in plan.placements):
        click.echo(f"{path} is done: there is nothing to resume", err=True)
        return 0
    before = launch_record.read(run)
    if before.note:
        click.echo(f"note: {before.note}", err=True)
    options = launch_record.laid_over(given, before.options)
    engine = choose_engine(options.engine or default_engine(job.backend), dry_run=False)
    engine.require()
    moves = given.hosts or given.hostfile or given.host_layout
    if moves or num_instances or given.pod or given.ipus or given.ilds or given.oversubscribe:
        instances = num_instances or (None if moves else plan.instances)
        solution = planned_again(plan, job, options, instances, engine)
    else:
        solution = Solution(plan)
    launch = launch_again(solution, job._replace(backend=engine.backend), options, engine, run.path)
    lost = lost_checkpoint(run, job)
    if lost:
        click.echo(f"warning: {lost}", err=True)
    with StopSignals() as signals:
        launch = require_other_hosts(launch, run.path, signals)
        with claim(run):
            launch = begin_again_on(solution, launch, run)._replace(messages=launch.messages)
            with writable(run):
                write_decided(launch, run)
            return attend(launch, run, display, signals)


def _require_ended(path: Path) -> None:
    """Refuse a run that its job still works on, or will; two would write the same checkpoints.

    So would instances that were started without a launcher. A launcher that lives keeps others away by itself.
    """
    job = record.read(path)
    if job is not None and record.is_this(job, os.environ):
        return
    (status,), notes = statuses([path])
    if job is None:
        if status.state == RUNNING and not RunDirectory(path).launcher.exists():
            raise UsageError(f"{path.name} runs, without a launcher", hint=f"wait for it, or {how_to_end(path)}")
        return
    for note in notes:
        click.echo(f"note: {note}; whether {job.scheduler} job {job.id} has ended is not known", err=True)
    if status.state in (WAITING, RUNNING, ENDING):
        raise UsageError(
            f"{job.scheduler} job {job.id} of {path.name} is {status.state}: it continues the run by itself",
            hint=f"wait for it, or end it first with ipulaunch cancel {path}",
        )
    if records_of(path).path == path:
        again = _SUBMITS.get(job.scheduler)
        hint = f"{again} {path / job.script} starts it" if again else "submit again with --resume, on the same volume"
        raise UsageError(f"{job.scheduler} job {job.id} has left no records in {path}", hint=hint)


def _read(run: RunDirectory) -> Tuple[Plan, Job]:
    try:
        return from_json(read_text(run.plan)), from_yaml(read_text(run.job), str(run.job))
    except PlanError as error:
        raise DataError(
            f"{run.path} cannot be resumed: {run.plan}: {error.message}",
            hint="start a new run; --resume on a workload's command line continues from its checkpoints",
        ) from error
    except OSError as error:
        raise UsageError(
            f"{run.path} cannot be resumed: its {Path(str(error.filename)).name} cannot be read, {error.strerror}",
            hint="runs of workloads can; a program of your own knows by itself how to continue",
        ) from error
