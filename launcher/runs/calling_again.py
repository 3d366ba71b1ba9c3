"""Another attempt of a run whose program is the user's own, which knows by itself how to continue."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import click

from ipulaunch.configs.runs.directory import records_of
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.registry import choose_engine, default_engine
from ipulaunch.launcher.launch import launch_record, program_record
from ipulaunch.launcher.launch.elastic import replan
from ipulaunch.launcher.launch.launch import launch_program
from ipulaunch.launcher.launch.needs import require_program
from ipulaunch.launcher.runs.resumable import is_done, read_plan, require_ended
from ipulaunch.launcher.runs.running import continue_run
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.show.messages import show_messages


def runs_program(path: Path) -> bool:
    """Whether the program of a run is the user's own."""
    return records_of(path).program.exists()


def call_again(path: Path, given: LaunchOptions, num_instances: Optional[int], display: Display) -> int:
    """Call the program of a run once more, as before but for what is given now; returns the exit code of the run."""
    require_ended(path)
    run = records_of(path)
    record = program_record.read_to_call(run)
    plan = read_plan(run)
    if is_done(run):
        click.echo(f"{path} is done: there is nothing to resume", err=True)
        return 0
    before = launch_record.read(run)
    show_messages(before.messages)
    options = launch_record.laid_over(given, before.options)
    engine = choose_engine(options.engine or default_engine(record.backend), dry_run=False)
    engine.require()
    solution = replan(plan, None, given, options, num_instances, engine)
    if solution.plan.is_on_this_host:
        require_program(record.program.words[0], options.env)
    return continue_run(launch_program(solution, record.program, options, engine, run.path), run, display)
