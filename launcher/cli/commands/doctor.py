"""`ipulaunch doctor`: what is here and what is missing for each engine, each with the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import click
from click.core import ParameterSource

from ipulaunch.configs.errors import UsageError
from ipulaunch.launcher.cli.diagnoses import (
    diagnosis_of_machine,
    diagnosis_of_program,
    diagnosis_of_workload,
    engine_beside_ipus,
)
from ipulaunch.launcher.cli.groups import WorkloadGroup
from ipulaunch.launcher.cli.options import (
    engine_from,
    engine_options,
    launch_options_from,
    program_options,
    program_settings,
    where_options,
)
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.doctor.report import print_diagnosis
from ipulaunch.launcher.engines.registry import choose_engine
from ipulaunch.launcher.launch.earlier_runs import with_resume
from ipulaunch.launcher.launch.planning import PROGRAM
from ipulaunch.launcher.launch.program_planning import plan_program


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


@click.group("doctor", cls=WorkloadGroup, invoke_without_command=True, subcommand_metavar="[WORKLOAD [OPTIONS]]")
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
    print_diagnosis(diagnosis_of_machine(launch_options_from(values), run_dir), as_json, verbose)


def _names_a_workload(ctx: click.Context) -> bool:
    """Whether a workload follows, which has options of its own; those in front of it would be lost."""
    workload = ctx.invoked_subcommand
    for param in ctx.command.params if workload else ():
        if param.name and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            flag = param.opts[0]
            raise UsageError(f"{flag} comes after the workload", hint=f"doctor {workload} ... {flag}")
    return workload is not None


@command.for_each_workload
def _doctor_workload(workload: str) -> click.Command:
    @workload_command(workload, f"Whether {workload} would run here, and what it lacks.")
    @where_options
    @_report_options
    @engine_options
    @settings_options(workload)
    def doctor(verbose: bool, as_json: bool, run_dir: Optional[Path], **values: Any) -> None:
        chosen = engine_from(values)
        engine = choose_engine(chosen, dry_run=False) if values["rehearsal"] else engine_beside_ipus(chosen)
        resolved = with_resume(settings_from(workload, values, on_cpus=engine.is_rehearsal))
        options = launch_options_from(values)
        diagnosis = diagnosis_of_workload(resolved, options, engine, run_dir, is_chosen=chosen is not None)
        print_diagnosis(diagnosis, as_json, verbose)

    return doctor


@command.command(PROGRAM)
@where_options
@_report_options
@engine_options
@program_options
def _doctor_program(verbose: bool, as_json: bool, run_dir: Optional[Path], **values: Any) -> None:
    """Whether a PopDist program of your own would run here."""
    settings = program_settings(values)
    options = launch_options_from(values)
    engine = engine_beside_ipus(options.engine)
    diagnosis = diagnosis_of_program(plan_program(options, engine, settings), options, engine, run_dir)
    print_diagnosis(diagnosis, as_json, verbose)
