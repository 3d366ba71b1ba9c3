"""Attempt after attempt, on the same hosts or without missing ones, until a run has ended or may not start again."""

from __future__ import annotations

import time
from typing import Dict, Tuple

from ipulaunch.configs.runs.checkpoints import newest_update
from ipulaunch.configs.runs.directory import RunDirectory, writable
from ipulaunch.launcher.launch.elastic import planned_without
from ipulaunch.launcher.launch.launch import Launch, launch_again
from ipulaunch.launcher.runs.one_attempt import run_attempt
from ipulaunch.launcher.runs.other_hosts import unready_hosts
from ipulaunch.launcher.runs.run_files import read_summary, write_decided
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.endings import (
    after_restarts,
    begin_again,
    next_restart,
    record_ending,
    within_preemptions,
)
from ipulaunch.launcher.supervise.stop_signals import StopSignals
from ipulaunch.launcher.supervise.verdict import interrupted, not_started


def attend(launch: Launch, run: RunDirectory, display: Display, signals: StopSignals) -> int:
    """Run a launch whose run directory is made and claimed, and start it again as often as its settings allow."""
    display.announce(launch, run)
    restarts, most_updates = 0, 0
    in_vain = 0  # restarts since an attempt got further than those before it
    missing: Dict[str, str] = {}
    while True:
        verdict, updates = (not_started(run, missing), 0) if missing else run_attempt(launch, run, display, signals)
        if updates > most_updates:
            most_updates, in_vain = updates, 0
        survival = launch.survival
        verdict = within_preemptions(run, verdict, survival)
        record_ending(run, verdict)
        if launch.job is None:
            break
        continues = newest_update(run, launch.job) is not None
        restart = next_restart(verdict, survival, restarts, continues or most_updates > 0, in_vain)
        if restart is None:
            verdict = after_restarts(verdict, survival, restarts)
            break
        restarts, in_vain = restart.number, in_vain + 1
        display.restarting(verdict, restart, continues)
        try:
            with signals.interrupting():
                time.sleep(restart.wait_s)
                missing = missing_hosts(launch, run)
        except KeyboardInterrupt:
            assert signals.first is not None
            what = f"in the pause before restart {restart.number} of {restart.most}"
            verdict = interrupted(run, signals.first, what, ours=True, kept=newest_update(run, launch.job))
            verdict = within_preemptions(run, verdict, survival)
            record_ending(run, verdict)
            break
        launch, missing = next_launch(launch, missing, run, display)
    processes.end_all()  # questions to hosts whose answers nobody needs any more
    display.conclude(verdict, run, read_summary(run))
    return verdict.exit_code


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
