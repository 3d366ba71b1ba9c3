"""Carrying out a launch: the run directory, the display, the supervision and the last word."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Optional

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.job import to_yaml
from ipulaunch.configs.run_directory import RUNS, RunDirectory, write_whole
from ipulaunch.launcher import engines
from ipulaunch.launcher.command import Command
from ipulaunch.launcher.display import Display
from ipulaunch.launcher.events import Follower
from ipulaunch.launcher.instance_logs import InstanceLogs
from ipulaunch.launcher.launch import Engine, Launch
from ipulaunch.launcher.redaction import redact
from ipulaunch.launcher.supervision import Supervisor
from ipulaunch.launcher.verdict import judge
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
    _require(launch.engine)
    run = _make_run(launch, path)
    plan = launch.solution.plan
    follower = Follower(run, plan.instances)
    display.start(launch, run)

    def look() -> None:
        display.show(follower.progress, follower.look())

    echo = display.echo if launch.job is None or display.verbose else None
    logs = InstanceLogs(run, plan, echo)
    supervisor = Supervisor(look)
    try:
        code = supervisor.run(launch.command, os.environ, logs)
    finally:
        follower.close()
        display.stop()
    verdict = judge(run, plan, code, supervisor.signal, logs.engine_lines, ours=launch.job is not None)
    display.conclude(verdict, run, _summary(run))
    return verdict.exit_code


def _require(engine: Engine) -> None:
    if engine.is_here:
        return
    if engine.name == "openmpi":
        engines.open_mpi()  # says what is missing
    raise NotReadyError("there is no poprun here", hint="enable the Poplar SDK, or rehearse with --engine openmpi")


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
    for placement in launch.solution.plan.placements:
        run.instance(placement.instance).mkdir()
        run.log(placement.instance).touch()
    return run


def _summary(run: RunDirectory) -> Dict[str, Any]:
    try:
        summary = json.loads(run.summary.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}
