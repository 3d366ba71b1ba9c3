"""Continuing a run in its own directory."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from ipulaunch.configs.messages import warning
from ipulaunch.configs.runs.directory import records_of
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.registry import choose_engine, default_engine
from ipulaunch.launcher.launch import launch_record
from ipulaunch.launcher.launch.elastic import replan
from ipulaunch.launcher.launch.launch import launch_again
from ipulaunch.launcher.runs.resumable import read_decided, require_ended
from ipulaunch.launcher.runs.running import continue_run
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.show.messages import show_messages
from ipulaunch.launcher.supervise.endings import lost_checkpoint


def resume(path: Path, given: LaunchOptions, num_instances: Optional[int], display: Display) -> int:
    """Continue a run to its end, launched as it was but for what is given now; returns its exit code."""
    require_ended(path)
    run = records_of(path)
    plan, job = read_decided(run)
    if all(run.done(placement.instance).exists() for placement in plan.placements):
        click.echo(f"{path} is done: there is nothing to resume", err=True)
        return 0
    before = launch_record.read(run)
    show_messages(before.messages)
    options = launch_record.laid_over(given, before.options)
    engine = choose_engine(options.engine or default_engine(job.backend), dry_run=False)
    engine.require()
    solution = replan(plan, job, given, options, num_instances, engine)
    launch = launch_again(solution, job._replace(backend=engine.backend), options, engine, run.path)
    lost = lost_checkpoint(run, job)
    show_messages([warning(lost)] if lost else [])
    return continue_run(launch, run, display)
