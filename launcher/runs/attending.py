"""Attempt after attempt, on the same hosts or without missing ones, until a run has ended or may not start again."""

from __future__ import annotations

import time
from typing import Dict

from ipulaunch.configs.runs.checkpoints import newest_update
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.runs.next_attempt import next_launch
from ipulaunch.launcher.runs.one_attempt import run_attempt
from ipulaunch.launcher.runs.other_hosts import unready_hosts
from ipulaunch.launcher.runs.run_files import read_summary
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.endings import (
    after_restarts,
    attempt_of,
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
        continues = launch.job is not None and newest_update(run, launch.job) is not None
        may_work = continues or most_updates > 0 or launch.program is not None  # which tells nothing of its updates
        restart = next_restart(verdict, survival, restarts, may_work, in_vain)
        if restart is None:
            verdict = after_restarts(verdict, survival, restarts)
            break
        restarts, in_vain = restart.number, in_vain + 1
        display.restarting(verdict, restart, _where_from(launch, run, has_checkpoint=continues))
        try:
            with signals.interrupting():
                time.sleep(restart.wait_s)
                missing = missing_hosts(launch, run)
        except KeyboardInterrupt:
            assert signals.first is not None
            what = f"in the pause before restart {restart.number} of {restart.most}"
            if launch.job is None:
                verdict = interrupted(run, signals.first, what, ours=False, goes_on=True)
            else:
                verdict = interrupted(run, signals.first, what, ours=True, kept=newest_update(run, launch.job))
            verdict = within_preemptions(run, verdict, survival)
            record_ending(run, verdict)
            break
        launch, missing = next_launch(launch, missing, run, display)
    processes.end_all()  # questions to hosts whose answers nobody needs any more
    display.conclude(verdict, run, read_summary(run))
    return verdict.exit_code


def _where_from(launch: Launch, run: RunDirectory, *, has_checkpoint: bool) -> str:
    if launch.program is not None:
        return "with " + " ".join(f"{name}={n}" for name, n in launch.program.told(attempt_of(run) + 1).items())
    return "from the newest checkpoint" if has_checkpoint else "from the beginning: there is no checkpoint yet"


def missing_hosts(launch: Launch, run: RunDirectory) -> Dict[str, str]:
    """The hosts that the next attempt lacks, and why."""
    # As at the first start: poprun has its own ways to reach hosts, and says itself what is wrong.
    is_asked = launch.survival.elastic_hosts or launch.engine.asks_hosts
    return unready_hosts(launch, run.path) if is_asked else {}
