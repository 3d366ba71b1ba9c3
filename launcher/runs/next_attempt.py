"""The launch of the next attempt, in a run directory that is made ready for it, perhaps without missing hosts."""

from __future__ import annotations

from typing import Dict, Tuple

from ipulaunch.configs.runs.directory import RunDirectory, writable
from ipulaunch.launcher.launch.elastic import planned_without
from ipulaunch.launcher.launch.launch import Launch, launch_again, launch_program
from ipulaunch.launcher.runs.run_files import write_decided
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise.endings import attempt_of, begin_again, set_aside


def next_attempt(launch: Launch, run: RunDirectory) -> Launch:
    """The same launch once more: a training from its newest checkpoint, a program with the number of its attempt."""
    plan = launch.solution.plan
    if launch.job is not None:
        return launch._replace(job=begin_again(run, plan, launch.job))
    assert launch.program is not None
    set_aside(run, plan)
    again = launch_program(launch.solution, launch.program, launch.options, launch.engine, run.path, attempt_of(run))
    return again._replace(messages=launch.messages)


def next_launch(
    launch: Launch, missing: Dict[str, str], run: RunDirectory, display: Display
) -> Tuple[Launch, Dict[str, str]]:
    """The launch of the next attempt, and the hosts that it lacks; with --elastic-hosts it is one without these."""
    is_elastic = launch.survival.elastic_hosts
    solution = planned_without(launch, missing) if missing and is_elastic else None
    if solution is None or launch.job is None:
        return next_attempt(launch, run), missing
    display.going_on(missing, solution.plan)
    job = begin_again(run, solution.plan, launch.job)
    again = launch_again(solution, job, launch.options, launch.engine, run.path)
    with writable(run):
        write_decided(again, run)
    return again, {}
