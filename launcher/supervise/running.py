"""Carrying out a launch: the run directory, the display, the supervision and the last word."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Dict, Tuple

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory, writable, write_whole
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.runs.secrets import secret_values, without_secrets
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.configs.settings.survival import Survival
from ipulaunch.configs.text import ENABLE_SDK
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.launch import launch_record
from ipulaunch.launcher.launch.elastic import begin_again_on, planned_without
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.launch.launch_options import Engine
from ipulaunch.launcher.launch.other_hosts import require_other_hosts, unready_hosts
from ipulaunch.launcher.launch.redaction import redacted
from ipulaunch.launcher.runs.claim import claim
from ipulaunch.launcher.runs.run_paths import ELSEWHERE
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.attempts import (
    after_restarts,
    begin_again,
    has_checkpoint,
    make_instances,
    newest_update,
    next_restart,
)
from ipulaunch.launcher.supervise.endings import record_ending, within_preemptions
from ipulaunch.launcher.supervise.events import Follower, Progress
from ipulaunch.launcher.supervise.instance_logs import InstanceLogs
from ipulaunch.launcher.supervise.stall import StallWatch
from ipulaunch.launcher.supervise.stop_signals import StopSignals
from ipulaunch.launcher.supervise.supervision import Supervisor
from ipulaunch.launcher.supervise.verdict import End, Verdict, interrupted, judge, not_started
from ipulaunch.topology.planning.plan import to_json


def carry_out(launch: Launch, path: Path, display: Display, *, is_made: bool = False) -> int:
    """Run a launch to its end, in a new directory or in an empty one; returns the exit code of the whole."""
    require(launch.engine)
    with StopSignals() as signals:
        launch = require_other_hosts(launch, path, signals)
        run = _make_run(launch, path, is_made)
        with claim(run):
            return attend(launch, run, display, signals)


def attend(launch: Launch, run: RunDirectory, display: Display, signals: StopSignals) -> int:
    """Run a launch whose run directory is made and claimed, and start it again as often as its settings allow."""
    record.renew(run.path.parent, os.environ)
    display.announce(launch, run)
    restarts, most_updates = 0, 0
    in_vain = 0  # restarts since an attempt got further than those before it
    missing: Dict[str, str] = {}
    while True:
        verdict, updates = (not_started(run, missing), 0) if missing else _attempt(launch, run, display, signals)
        if updates > most_updates:
            most_updates, in_vain = updates, 0
        survival = _survival(launch)
        verdict = within_preemptions(run, verdict, survival)
        record_ending(run, verdict)
        if launch.job is None:
            break
        continues = has_checkpoint(run, launch.job)
        restart = next_restart(verdict, survival, restarts, continues or most_updates > 0, in_vain)
        if restart is None:
            verdict = after_restarts(verdict, survival, restarts)
            break
        restarts, in_vain = restart.number, in_vain + 1
        display.restarting(verdict, restart, continues)
        try:
            with signals.interrupting():
                time.sleep(restart.wait_s)
                missing = _missing(launch, run)
        except KeyboardInterrupt:
            assert signals.first is not None
            what = f"in the pause before restart {restart.number} of {restart.most}"
            verdict = interrupted(run, signals.first, what, ours=True, kept=newest_update(run, launch.job))
            verdict = within_preemptions(run, verdict, survival)
            record_ending(run, verdict)
            break
        launch, missing = _again(launch, missing, run, display)
    processes.end_all()  # whoever still asks hosts of which nobody wants to know any more
    display.conclude(verdict, run, _summary(run))
    return verdict.exit_code


def _missing(launch: Launch, run: RunDirectory) -> Dict[str, str]:
    """The hosts that the next attempt lacks, and why."""
    # As at the first start: poprun has its own ways to reach hosts, and says itself what is wrong.
    is_asked = _survival(launch).elastic_hosts or launch.engine.name == "openmpi"
    return unready_hosts(launch, run.path) if is_asked else {}


def _again(
    launch: Launch, missing: Dict[str, str], run: RunDirectory, display: Display
) -> Tuple[Launch, Dict[str, str]]:
    """The launch of the next attempt, and the hosts that it lacks; with --elastic-hosts it is one without these."""
    assert launch.job is not None
    is_elastic = _survival(launch).elastic_hosts
    solution = planned_without(launch, missing) if missing and is_elastic else None
    if solution is None:
        return launch._replace(job=begin_again(run, launch.solution.plan, launch.job)), missing
    display.going_on(missing, solution.plan)
    again = begin_again_on(solution, launch, run)
    with writable(run):
        write_decided(again, run)
    return again, {}


def _survival(launch: Launch) -> Survival:
    return launch.job.settings.survival if launch.job else Survival()


def _attempt(launch: Launch, run: RunDirectory, display: Display, signals: StopSignals) -> Tuple[Verdict, int]:
    """Start all instances once, and wait until none is left: the verdict, and the update that was reached."""
    plan, is_ours = launch.solution.plan, launch.job is not None
    follower = Follower(run, plan.instances)
    survival = _survival(launch)

    def ask_hosts() -> Dict[str, str]:
        try:
            with signals.interrupting():
                return unready_hosts(launch, run.path)
        except KeyboardInterrupt:  # nobody waits for an answer any more
            return {}

    watch = StallWatch(run, plan, survival.stall_timeout_s, ask_hosts=ask_hosts)

    def look() -> None:
        records = follower.look()
        if records:
            watch.saw_progress()
        display.show(follower.progress, records)

    def ask_to_stop(number: int) -> float:
        look()  # the first update may have been made since the last time
        if launch.job is None or not _can_keep(launch.job, follower.progress):
            return 0.0
        try:
            run.stop.touch()
        except OSError:  # a full disk, on which no checkpoint would find room either
            return 0.0
        after = "this update" if launch.job.is_rehearsal else "this call of the device"
        display.stopping(signal.Signals(number).name, after, survival.grace_s)
        return survival.grace_s

    is_direct = launch.engine.name == "direct"
    echo = display.echo if not is_ours or display.verbose else None
    with writable(run):
        logs = InstanceLogs(run, plan, echo, hidden=secret_values(os.environ), is_tagged=not is_direct)
    supervisor = Supervisor(
        look,
        signals,
        ask_to_stop=ask_to_stop,
        is_hung=lambda: is_ours and watch.verdict() is not None,
        removes_files=is_ours and plan.is_on_this_host,
    )
    environ = without_secrets(os.environ, [text.partition("=")[0] for text in launch.asked.env])
    display.begin()
    try:
        code = supervisor.run(launch.command, environ, logs)
    finally:
        follower.close()
        display.end()
    end = End(
        run,
        plan,
        code,
        logs.engine_lines,
        ours=is_ours,
        stopped_by=signals.first,
        hung=watch.verdict() if is_ours else None,
        ended_ns=supervisor.ended_ns,
        kept=newest_update(run, launch.job) if launch.job else None,
        ask_hosts=ask_hosts,
        is_direct=is_direct,
    )
    return judge(end), follower.progress.update


def _can_keep(job: Job, progress: Progress) -> bool:
    """Whether there may be updates for a checkpoint to keep; IPUs tell of none before their first call returns."""
    return progress.update > 0 or (not job.is_rehearsal and progress.total_updates > 0)


def require(engine: Engine) -> None:
    if engine.is_here:
        return
    if engine.name == "openmpi":
        discovery.open_mpi()  # says what is missing
    if engine.name == "direct":
        hint = f"{ENABLE_SDK}, or rehearse with --engine openmpi"
        raise NotReadyError("the Poplar SDK is not enabled here: POPLAR_SDK_ENABLED is not set", hint=hint)
    raise NotReadyError("there is no poprun here", hint=f"{ENABLE_SDK}, or rehearse with --engine openmpi")


def _make_run(launch: Launch, path: Path, is_made: bool) -> RunDirectory:
    run = RunDirectory(path)
    with writable(run, ELSEWHERE):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=is_made)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"the run directory {path} cannot be made: {error.strerror}") from error
        try:
            write_decided(launch, run)
            make_instances(run, launch.solution.plan)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)  # the name is free for the next try
            raise
    return run


def write_decided(launch: Launch, run: RunDirectory) -> None:
    """Write down what was decided and what will be started."""
    write_whole(run.plan, to_json(launch.solution.plan))
    if launch.job is not None:
        write_whole(run.job, to_yaml(launch.job))
        write_whole(run.asked, launch_record.to_json(launch.asked))
    write_whole(run.command, redacted(launch.command, secret_values(os.environ)).shell() + "\n")


def _summary(run: RunDirectory) -> Dict[str, Any]:
    try:
        summary = parse_json(read_text(run.summary))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}
