"""Running a launch to its end, in a new directory or in that of an earlier attempt."""

from __future__ import annotations

import os
from pathlib import Path

from ipulaunch.configs.runs.directory import RunDirectory, whole_run, writable
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.launch.remembered import remember
from ipulaunch.launcher.runs.attending import attend
from ipulaunch.launcher.runs.next_attempt import next_attempt
from ipulaunch.launcher.runs.other_hosts import require_other_hosts
from ipulaunch.launcher.runs.reporting import report_at_end
from ipulaunch.launcher.runs.run_files import make_run, write_decided
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise.claim import claim
from ipulaunch.launcher.supervise.stop_signals import StopSignals


def run_launch(launch: Launch, path: Path, display: Display, *, is_made: bool = False) -> int:
    """Run a launch to its end, in a new directory or in an empty one; returns the exit code of the whole."""
    launch.engine.require()
    with StopSignals() as signals:
        launch = require_other_hosts(launch, path, signals)
        run = make_run(launch, path, is_made)
        if not is_made:  # it lies where the user wants it
            remember(run.path)
        with claim(run):
            record.renew(run.path.parent, os.environ)
            code = attend(launch, run, display, signals)
        report_at_end(run, whole_run(run.path).name, display)
        return code


def continue_run(launch: Launch, run: RunDirectory, display: Display) -> int:
    """Run another attempt in the directory of a run that has ended; returns the exit code of the whole."""
    with StopSignals() as signals:
        launch = require_other_hosts(launch, run.path, signals)
        with claim(run):
            launch = next_attempt(launch, run)
            with writable(run):
                write_decided(launch, run)
            record.renew(run.path.parent, os.environ)
            code = attend(launch, run, display, signals)
        report_at_end(run, whole_run(run.path).name, display)
        return code
