"""`ipulaunch doctor`: what is here and what is missing for each engine, each with the fix."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, List, Optional, Tuple

import click
from click.core import ParameterSource

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.settings.sections import Launch, Training
from ipulaunch.configs.settings.workloads import SUMMARIES
from ipulaunch.configs.text import some
from ipulaunch.launcher.cli.commands.run import program_options, program_settings
from ipulaunch.launcher.cli.groups import NearMissGroup
from ipulaunch.launcher.cli.options import (
    engine_from,
    engine_options,
    launch_options_from,
    settings_from,
    settings_options,
    where_options,
)
from ipulaunch.launcher.cli.settings_command import SettingsCommand
from ipulaunch.launcher.doctor.check import BOTH, POPRUN
from ipulaunch.launcher.doctor.diagnosis import VIPU_PORT, Diagnosis, Place, Vipu, with_places
from ipulaunch.launcher.doctor.environment import this_machine
from ipulaunch.launcher.doctor.examinations import diagnose
from ipulaunch.launcher.doctor.report import MOST, as_data, as_text, can_run, lacks
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.registry import choose_engine, default_engine, engine_class, silent_rehearsal
from ipulaunch.launcher.launch.earlier_runs import with_resume
from ipulaunch.launcher.launch.launch import launch_planned, launch_program
from ipulaunch.launcher.launch.machines import named_hosts
from ipulaunch.launcher.launch.planning import PROGRAM, plan_for, plan_program
from ipulaunch.launcher.launch.workload_planning import plan_workload
from ipulaunch.topology import Plan


class Doctor(NearMissGroup):
    """One command for each workload and one for programs; without any, the machine alone."""

    def list_commands(self, ctx: click.Context) -> List[str]:
        return [*SUMMARIES, PROGRAM]

    def get_command(self, ctx: click.Context, name: str) -> Optional[click.Command]:
        if name in SUMMARIES:
            return _doctor_workload(name)
        return _doctor_program if name == PROGRAM else None


def _report_options(function: Any) -> Any:
    path = click.Path(path_type=Path, readable=False)
    for option in (
        click.option("--verbose", "-v", is_flag=True, help="Show every check of every host."),
        click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON."),
        click.option("--run-dir", type=path, help="Directory that the run would use. Default: a new one in runs/."),
    ):
        function = option(function)
    return function


def _machine_options(function: Any) -> Any:
    options = [
        click.option("--python", metavar="PATH", help="Python interpreter that the instances would use."),
        click.option("--vipu-server-host", metavar="HOST", help="Host of the V-IPU controller to reach."),
        click.option("--vipu-server-port", type=click.IntRange(1, 65535), help="Port of the V-IPU controller."),
        click.option("--vipu-partition", metavar="NAME", help="V-IPU partition to look for."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.group("doctor", cls=Doctor, invoke_without_command=True, subcommand_metavar="[WORKLOAD [OPTIONS]]")
@where_options
@_report_options
@_machine_options
def command(verbose: bool, as_json: bool, run_dir: Optional[Path], **values: Any) -> None:
    """Say what is here and what is missing, each with the fix.

    \b
    ipulaunch doctor                                       this machine, for each engine
    ipulaunch doctor --hosts a,b                           these hosts as well
    ipulaunch doctor cosmoflow --pod 16 --data-dir D       whether this would run here: 0 yes, 4 no
    """
    if _names_a_workload(click.get_current_context()):
        return
    options = launch_options_from(values)
    diagnosis = _diagnosis(options, run_dir)
    if options.pod is not None or options.ipus is not None:
        engine = _engine(options.engine)
        plan = plan_for("any workload", options, engine, Launch(), Training(), {}).plan
        diagnosis = _planned(diagnosis, plan, engine, options.engine is not None)
    elif options.host_layout or options.ilds or options.oversubscribe:
        raise UsageError("a plan is described, and no system is named", hint="give --pod 16, or a workload")
    else:
        name = engine_class(options.engine).doctor_name if options.engine else None
        diagnosis = diagnosis._replace(engines=(name,) if name else BOTH, hosts=named_hosts(options))
    _show(diagnosis, as_json, verbose)


def _names_a_workload(ctx: click.Context) -> bool:
    """Whether a workload follows, which has options of its own; those in front of it would be lost."""
    workload = ctx.invoked_subcommand
    for param in ctx.command.params if workload else ():
        if param.name and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            flag = param.opts[0]
            raise UsageError(f"{flag} comes after the workload", hint=f"doctor {workload} ... {flag}")
    return workload is not None


def _doctor_workload(workload: str) -> click.Command:
    @click.command(workload, cls=SettingsCommand, help=f"Whether {workload} would run here, and what it lacks.")
    @where_options
    @_report_options
    @engine_options
    @settings_options(workload)
    def doctor(verbose: bool, as_json: bool, run_dir: Optional[Path], **values: Any) -> None:
        chosen = engine_from(values)
        engine = choose_engine(chosen, dry_run=False) if values["rehearsal"] else _engine(chosen)
        resolved = with_resume(settings_from(workload, values, on_cpus=engine.is_rehearsal))
        options = launch_options_from(values)
        solution = plan_workload(resolved, options, engine)
        with contextlib.suppress(NotReadyError):  # what is not ready is found below
            launch_planned(solution, resolved, options, engine, None)
        diagnosis = _planned(_diagnosis(options, run_dir), solution.plan, engine, chosen is not None)
        if resolved.settings.device.compile_only:  # poprun is not told of the controller then
            diagnosis = diagnosis._replace(vipu=None)
        _show(with_places(diagnosis, workload, resolved.settings), as_json, verbose)

    return doctor


@click.command(PROGRAM)
@where_options
@_report_options
@engine_options
@program_options
def _doctor_program(verbose: bool, as_json: bool, run_dir: Optional[Path], **values: Any) -> None:
    """Whether a PopDist program of your own would run here."""
    settings = program_settings(values)
    options = launch_options_from(values)
    engine = _engine(options.engine)
    solution = plan_program(options, engine, settings)
    with contextlib.suppress(NotReadyError):
        launch_program(solution, (PROGRAM,), options, engine)
    diagnosis = _planned(_diagnosis(options, run_dir), solution.plan, engine, options.engine is not None)
    _show(diagnosis._replace(is_own_program=True), as_json, verbose)


def _engine(chosen: Optional[str]) -> Engine:
    """What would start the instances: beside IPUs poprun, since no launch rehearses there unless it is asked to."""
    engine = choose_engine(chosen, dry_run=False)
    return choose_engine(default_engine("ipu"), dry_run=False) if silent_rehearsal(engine, chosen) else engine


def _diagnosis(options: LaunchOptions, run_dir: Optional[Path]) -> Diagnosis:
    """What the options say, before there is a plan."""
    return Diagnosis(
        python=options.python or sys.executable,
        run_dir=None if run_dir is None else run_dir.absolute(),
        vipu=_vipu(options.poprun),
        writes=_cache(options.poprun),
        is_direct=options.engine is not None and engine_class(options.engine).doctor_name != options.engine,
        directory=Path.cwd(),
    )


def _planned(diagnosis: Diagnosis, plan: Plan, engine: Engine, is_chosen: bool) -> Diagnosis:
    name = engine.doctor_name
    engines: Tuple[str, ...] = (name,) if is_chosen else BOTH
    hosts = () if plan.is_on_this_host else plan.hosts
    return diagnosis._replace(plan=plan, engine=name, engines=engines, hosts=hosts)


def _cache(poprun: Any) -> Tuple[Place, ...]:
    path = poprun.get("executable_cache_path")
    return (Place("executable cache", Path(path).absolute(), "--executable-cache-path", (POPRUN,)),) if path else ()


def _vipu(poprun: Any) -> Optional[Vipu]:
    host, partition = poprun.get("vipu_server_host"), poprun.get("vipu_partition")
    if poprun.get("offline_mode") or not (host or partition):
        return None
    port = poprun.get("vipu_server_port") or VIPU_PORT
    return Vipu(host, port, partition, may_create=bool(poprun.get("update_partition")))


def _show(diagnosis: Diagnosis, as_json: bool, verbose: bool) -> None:
    checks = diagnose(diagnosis, this_machine())
    if as_json:
        click.echo(json.dumps(as_data(diagnosis, checks), indent=1))
    else:
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        text = as_text(diagnosis, checks, encoding, verbose).encode(encoding, "backslashreplace").decode(encoding)
        click.echo(text, color=False if os.environ.get("NO_COLOR") else None)
    if can_run(diagnosis, checks) is False:
        missing = some(lacks(str(diagnosis.engine), checks), MOST)
        is_rehearsal = engine_class(str(diagnosis.engine)).backend == "cpu"
        instead = "" if is_rehearsal else "; --engine openmpi rehearses on CPUs"
        message = f"this cannot run here with {diagnosis.name_of(str(diagnosis.engine))}; missing: {missing}"
        raise NotReadyError(message, hint=f"the report has the fixes{instead}")
