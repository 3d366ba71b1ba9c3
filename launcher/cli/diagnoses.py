"""What the doctor measures a machine against: a workload, a program, or the engines alone."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any, Optional, Tuple

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.launcher.doctor.diagnosis import (
    DEFAULT_ENGINES,
    VIPU_PORT,
    Diagnosis,
    UsedDirectory,
    Vipu,
    with_places,
)
from ipulaunch.launcher.engines.engine import SDK, Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.registry import choose_engine, default_engine, engines_that_need, silent_rehearsal
from ipulaunch.launcher.launch.launch import launch_planned, launch_program
from ipulaunch.launcher.launch.planning import PROGRAM, named_hosts, plan_system
from ipulaunch.launcher.launch.program import Program
from ipulaunch.launcher.launch.workload_planning import plan_workload
from ipulaunch.topology.planning.solver import Solution


def diagnosis_of_machine(options: LaunchOptions, run_dir: Optional[Path]) -> Diagnosis:
    """This machine, and the hosts and the system that the options name."""
    diagnosis = _diagnosis(options, run_dir)
    if options.pod is not None or options.ipus is not None:
        engine = engine_beside_ipus(options.engine)
        return _planned(diagnosis, plan_system(options, engine), engine, options.engine is not None)
    if options.host_layout or options.ilds or options.oversubscribe:
        raise UsageError("a plan is described, and no system is named", hint="give --pod 16, or a workload")
    engines = (options.engine,) if options.engine else DEFAULT_ENGINES
    return diagnosis._replace(engines=engines, hosts=named_hosts(options))


def diagnosis_of_workload(
    resolved: Resolved, options: LaunchOptions, engine: Engine, run_dir: Optional[Path], *, is_chosen: bool
) -> Diagnosis:
    """A workload with its plan and its directories."""
    solution = plan_workload(resolved, options, engine)
    with contextlib.suppress(NotReadyError):  # the checks find what is not ready
        launch_planned(solution, resolved, options, engine, None)
    diagnosis = _planned(_diagnosis(options, run_dir), solution, engine, is_chosen)
    if resolved.settings.device.compile_only:  # poprun does not use the controller then
        diagnosis = diagnosis._replace(vipu=None)
    return with_places(diagnosis, resolved.workload, resolved.settings)


def diagnosis_of_program(
    solution: Solution, options: LaunchOptions, engine: Engine, run_dir: Optional[Path]
) -> Diagnosis:
    """A program of the user with its plan."""
    with contextlib.suppress(NotReadyError):
        launch_program(solution, Program((PROGRAM,)), options, engine)
    diagnosis = _planned(_diagnosis(options, run_dir), solution, engine, options.engine is not None)
    return diagnosis._replace(is_own_program=True)


def engine_beside_ipus(chosen: Optional[str]) -> Engine:
    """The engine that would start the instances: beside IPUs a launch rehearses only if the user says so."""
    engine = choose_engine(chosen, dry_run=False)
    return choose_engine(default_engine("ipu"), dry_run=False) if silent_rehearsal(engine, chosen) else engine


def _diagnosis(options: LaunchOptions, run_dir: Optional[Path]) -> Diagnosis:
    """What the options say, before there is a plan."""
    return Diagnosis(
        python=options.python or sys.executable,
        run_dir=None if run_dir is None else run_dir.absolute(),
        vipu=_vipu(options.poprun),
        writes=_cache(options.poprun),
        directory=Path.cwd(),
    )


def _planned(diagnosis: Diagnosis, solution: Solution, engine: Engine, is_chosen: bool) -> Diagnosis:
    plan = solution.plan
    engines = (engine.name,) if is_chosen else DEFAULT_ENGINES
    hosts = () if plan.is_on_this_host else plan.hosts
    return diagnosis._replace(plan=plan, engine=engine.name, engines=engines, hosts=hosts)


def _cache(poprun: Any) -> Tuple[UsedDirectory, ...]:
    path = poprun.get("executable_cache_path")
    if not path:
        return ()
    stops = engines_that_need(SDK)
    return (UsedDirectory("executable cache", Path(path).absolute(), "--executable-cache-path", stops),)


def _vipu(poprun: Any) -> Optional[Vipu]:
    host, partition = poprun.get("vipu_server_host"), poprun.get("vipu_partition")
    if poprun.get("offline_mode") or not (host or partition):
        return None
    port = poprun.get("vipu_server_port") or VIPU_PORT
    return Vipu(host, port, partition, may_create=bool(poprun.get("update_partition")))
