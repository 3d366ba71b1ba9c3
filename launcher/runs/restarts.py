"""The next attempt of a run that failed: on the same hosts, or without those that are missing."""

from __future__ import annotations

from typing import Dict, Tuple

from ipulaunch.configs.runs.directory import RunDirectory, writable
from ipulaunch.launcher.launch.elastic import planned_without
from ipulaunch.launcher.launch.launch import Launch, launch_again
from ipulaunch.launcher.runs.other_hosts import unready_hosts
from ipulaunch.launcher.runs.run_files import write_decided
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise.attempts import begin_again


def missing_hosts(launch: Launch, run: RunDirectory) -> Dict[str, str]:
    """The hosts that the next attempt lacks, and why."""
    # As at the first start: poprun has its own ways to reach hosts, and says itself what is wrong.
    is_asked = launch.survival.elastic_hosts or launch.engine.asks_hosts
    return unready_hosts(launch, run.path) if is_asked else {}


def next_launch(
    launch: Launch, missing: Dict[str, str], run: RunDirectory, display: Display
) -> Tuple[Launch, Dict[str, str]]:
    """The launch of the next attempt, and the hosts that it lacks; with --elastic-hosts it is one without these."""
    assert launch.job is not None
    is_elastic = launch.survival.elastic_hosts
    solution = planned_without(launch, missing) if missing and is_elastic else None
    if solution is None:
        return launch._replace(job=begin_again(run, launch.solution.plan, launch.job)), missing
    display.going_on(missing, solution.plan)
    job = begin_again(run, solution.plan, launch.job)
    again = launch_again(solution, job, launch.options, launch.engine, run.path)
    with writable(run):
        write_decided(again, run)
    return again, {}
