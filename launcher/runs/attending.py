"""Attempt after attempt, until a run has ended or may not be started again."""

from __future__ import annotations

import time
from typing import Dict

from ipulaunch.configs.runs.checkpoints import newest_update
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.runs.one_attempt import run_attempt
from ipulaunch.launcher.runs.restarts import missing_hosts, next_launch
from ipulaunch.launcher.runs.run_files import read_summary
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.endings import after_restarts, next_restart, record_ending, within_preemptions
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
