"""Carrying out a launch: the run directory, the display, the supervision and the last word."""

from __future__ import annotations

import json
import os
import platform
import signal
import time
from pathlib import Path
from typing import Any, Dict, Optional

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.job import to_yaml
from ipulaunch.configs.run_directory import RUNS, RunDirectory, write_whole
from ipulaunch.configs.survival import Survival
from ipulaunch.launcher import engines
from ipulaunch.launcher.attempts import begin_again, has_checkpoint, make_instances, next_restart
from ipulaunch.launcher.command import Command
from ipulaunch.launcher.display import Display
from ipulaunch.launcher.events import Follower
from ipulaunch.launcher.instance_logs import InstanceLogs
from ipulaunch.launcher.launch import Engine, Launch
from ipulaunch.launcher.redaction import redact
from ipulaunch.launcher.stall import StallWatch
from ipulaunch.launcher.supervision import END_SIGNALS, Supervisor, pause
from ipulaunch.launcher.verdict import Verdict, judge
from ipulaunch.topology.plan import to_json


def new_run_path(name: str, asked: Optional[Path]) -> Path:
    """Where a run will lie; a directory that exists is refused, so that no run writes over another."""
    try:
        if asked is not None:
            if asked.exists():
                hint = "name one that does not, or leave --run-dir out"
                raise UsageError(f"there is a run directory {asked} already", hint=hint)
            return asked.absolute()
        base = Path(RUNS).absolute()
    except OSError as error:
        raise UsageError(f"the run directory cannot be made: {error.strerror}") from error
    stamp = time.strftime("%Y%m%d-%H%M%S")
    candidates = [base / f"{name}-{stamp}"] + [base / f"{name}-{stamp}-{n}" for n in range(2, 100)]
    return next(path for path in candidates if not path.exists())


def carry_out(launch: Launch, path: Path, display: Display) -> int:
    """Run a launch to its end; returns the exit code of the whole."""
    require(launch.engine)
    _require_hosts(launch, path)
    return attend(launch, _make_run(launch, path), display)


def attend(launch: Launch, run: RunDirectory, display: Display) -> int:
    """Run a launch whose run directory is made, and start it again as often as its settings allow."""
    display.start(launch, run)
    restarts = 0
    while True:
        verdict = _attempt(launch, run, display)
        if launch.job is None:
            break
        survival: Survival = launch.job.settings.survival
        restart = next_restart(verdict, survival, restarts, has_checkpoint(run, launch.job))
        if restart is None:
            break
        restarts = restart.number
        display.restarting(verdict, restart)
        interrupted = pause(restart.wait_s)
        if interrupted is not None:
            verdict = judge(run, launch.solution.plan, 0, interrupted, [], ours=True)
            break
        launch = launch._replace(job=begin_again(run, launch.solution.plan, launch.job))
    display.conclude(verdict, run, _summary(run))
    return verdict.exit_code


def _attempt(launch: Launch, run: RunDirectory, display: Display) -> Verdict:
    """Start all instances once, and wait until none is left."""
    plan, is_ours = launch.solution.plan, launch.job is not None
    follower = Follower(run, plan.instances)
    survival = launch.job.settings.survival if launch.job else Survival()
    watch = StallWatch(run, plan, survival.stall_timeout_s)

    def look() -> None:
        records = follower.look()
        if records:
            watch.saw_progress()
        display.show(follower.progress, records)

    def ask_to_stop(number: int) -> float:
        if not is_ours or not follower.progress.update:  # nothing that a checkpoint could keep
            return 0.0
        display.stopping(signal.Signals(number).name, survival.grace_s)
        run.stop.touch()
        return survival.grace_s

    echo = display.echo if not is_ours or display.verbose else None
    logs = InstanceLogs(run, plan, echo)
    signals = {*END_SIGNALS, *(signal.Signals[f"SIG{name}"] for name in survival.stop_signals if is_ours)}
    supervisor = Supervisor(
        look,
        signals=sorted(signals),
        ask_to_stop=ask_to_stop,
        is_hung=lambda: is_ours and watch.verdict() is not None,
    )
    try:
        code = supervisor.run(launch.command, os.environ, logs)
    finally:
        follower.close()
        display.stop()
    hung = watch.verdict() if is_ours else None
    return judge(run, plan, code, supervisor.signal, logs.engine_lines, ours=is_ours, hung=hung)


def require(engine: Engine) -> None:
    if engine.is_here:
        return
    if engine.name == "openmpi":
        engines.open_mpi()  # says what is missing
    raise NotReadyError("there is no poprun here", hint="enable the Poplar SDK, or rehearse with --engine openmpi")


def _require_hosts(launch: Launch, path: Path) -> None:
    """Ask every other host of a rehearsal whether it could take part, before anything is started."""
    hosts = tuple(host for host in launch.solution.plan.hosts if host not in ("localhost", platform.node()))
    if launch.engine.name != "openmpi" or not hosts:
        return
    from ipulaunch.launcher.doctor.case import Case, with_places
    from ipulaunch.launcher.doctor.remote_hosts import require_hosts
    from ipulaunch.launcher.doctor.world import this_machine

    case = Case(plan=launch.solution.plan, engine="openmpi", run_dir=path, hosts=hosts, directory=Path.cwd())
    require_hosts(with_places(case, launch.job.settings) if launch.job else case, this_machine())


def _make_run(launch: Launch, path: Path) -> RunDirectory:
    run = RunDirectory(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"the run directory {path} cannot be made: {error.strerror}") from error
    write_whole(run.plan, to_json(launch.solution.plan))
    if launch.job is not None:
        write_whole(run.job, to_yaml(launch.job))
    shown = Command(tuple(redact(launch.command.argv)), launch.command.env)
    write_whole(run.command, shown.shell() + "\n")
    make_instances(run, launch.solution.plan)
    return run


def _summary(run: RunDirectory) -> Dict[str, Any]:
    try:
        summary = json.loads(run.summary.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}
