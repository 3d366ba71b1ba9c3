"""One attempt of a run: all instances started once, watched, and judged when none is left."""

from __future__ import annotations

import os
import signal
from typing import Dict, Tuple

from ipulaunch.configs.runs.checkpoints import newest_update
from ipulaunch.configs.runs.directory import RunDirectory, writable
from ipulaunch.configs.runs.secrets import secret_values, without_secrets
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.runs.other_hosts import unready_hosts
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise.instance_logs import InstanceLogs
from ipulaunch.launcher.supervise.progress import Follower, RunProgress
from ipulaunch.launcher.supervise.stall import StallWatch
from ipulaunch.launcher.supervise.stop_signals import StopSignals
from ipulaunch.launcher.supervise.supervision import Supervisor
from ipulaunch.launcher.supervise.verdict import End, Verdict, judge


def run_attempt(launch: Launch, run: RunDirectory, display: Display, signals: StopSignals) -> Tuple[Verdict, int]:
    """Start all instances once, and wait until none is left: the verdict, and the update that was reached."""
    plan, is_ours = launch.solution.plan, launch.job is not None
    follower = Follower(run, plan.instances)
    survival = launch.survival

    def ask_hosts() -> Dict[str, str]:
        try:
            with signals.interrupting():
                return unready_hosts(launch, run.path)
        except KeyboardInterrupt:  # nobody waits for an answer any more
            return {}

    watch = StallWatch(
        run, plan, survival.stall_timeout_s, ask_hosts=ask_hosts, joining=lambda: follower.progress.joining
    )

    def look() -> None:
        recorded = follower.look()
        if recorded:
            watch.saw_progress()
        display.show(follower.progress, recorded)

    def pass_on(number: int) -> float:
        if not supervisor.pass_on(number):
            return 0.0
        if signals.first is not None:
            display.passing_on(signal.Signals(number).name, survival.grace_s)
        return survival.grace_s

    def ask_to_stop(number: int) -> float:
        look()  # the first update may have been made since the last time
        if launch.job is None:
            return pass_on(number)
        if not _can_keep(launch.job.is_rehearsal, follower.progress):
            return 0.0
        try:
            run.stop.touch()
        except OSError:  # a full disk, on which no checkpoint would find room either
            return 0.0
        after = "this update" if launch.job.is_rehearsal else "this call of the device"
        display.stopping(signal.Signals(number).name, after, survival.grace_s)
        return survival.grace_s

    echo = display.echo if not is_ours or display.verbose else None
    with writable(run):
        logs = InstanceLogs(run, plan, echo, hidden=secret_values(os.environ), is_tagged=launch.engine.tags_output)
    supervisor = Supervisor(
        look,
        signals,
        ask_to_stop=ask_to_stop,
        is_hung=lambda: is_ours and watch.verdict() is not None,
        is_leaving=lambda: not is_ours and follower.asks_to_continue(),
        removes_files=is_ours and plan.is_on_this_host,
    )
    environ = without_secrets(os.environ, [text.partition("=")[0] for text in launch.options.env])
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
        unkept=logs.unkept,
        hung=watch.verdict() if is_ours else None,
        ended_ns=supervisor.ended_ns,
        kept=newest_update(run, launch.job) if launch.job else None,
        ask_hosts=ask_hosts,
        is_direct=not launch.engine.tags_output,
    )
    return judge(end), follower.progress.update


def _can_keep(is_rehearsal: bool, progress: RunProgress) -> bool:
    """Whether there may be updates for a checkpoint to keep; IPUs report none before their first call returns."""
    return progress.update > 0 or (not is_rehearsal and progress.total_updates > 0)
