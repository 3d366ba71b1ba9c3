"""`ipulaunch submit`: a job for a cluster, printed or handed over to its scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Tuple

import click

from ipulaunch.launcher.cli.groups import WorkloadGroup
from ipulaunch.launcher.cli.job_options import job_options_from, with_job_options
from ipulaunch.launcher.cli.job_output import submit_or_print
from ipulaunch.launcher.cli.options import (
    engine_from,
    launch_options,
    launch_options_from,
    program_options,
    program_settings,
    require_words,
    run_options,
    survival_from,
    survival_options,
    verbosity_from,
)
from ipulaunch.launcher.cli.settings_command import ProgramCommand
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.engines.registry import cluster_engine
from ipulaunch.launcher.launch.planning import PROGRAM
from ipulaunch.launcher.launch.program import Program
from ipulaunch.launcher.schedulers.program_task import ProgramTask
from ipulaunch.launcher.schedulers.submission import Submission, prepare
from ipulaunch.launcher.schedulers.workload_task import WorkloadTask


@click.group("submit", cls=WorkloadGroup, options_metavar="", subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Submit a training to a cluster, or a program of your own: ipulaunch submit cosmoflow --pod 16 --dry-run"""


@command.for_each_workload
def _submit_workload(workload: str) -> click.Command:
    @workload_command(workload, f"Submit {workload} to a cluster.")
    @launch_options
    @settings_options(workload)
    def submit(**values: Any) -> None:
        dry_run, as_json, run_dir = values.pop("dry_run"), values.pop("as_json"), values.pop("run_dir")
        verbose = verbosity_from(values) > 0
        job = job_options_from(values)
        engine = cluster_engine(engine_from(values))
        resolved = settings_from(workload, values, on_cpus=engine.is_rehearsal, elsewhere=job.is_in_pods)
        options = launch_options_from(values, elsewhere=job.is_in_pods)

        def prepared(path: Path) -> Submission:
            task = WorkloadTask(resolved, in_pods=job.is_in_pods)
            return prepare(task, options, engine, job.scheduler, job.site, job.given, path, verbose=verbose)

        submit_or_print(prepared, workload, run_dir, dry_run=dry_run, as_json=as_json)

    return with_job_options(submit)


@command.command(PROGRAM, cls=ProgramCommand, context_settings={"allow_interspersed_args": False})
@run_options
@program_options
@survival_options
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def _submit_program(program: Tuple[str, ...], **values: Any) -> None:
    """Submit a PopDist program of your own: ipulaunch submit program --pod 16 --scheduler slurm -- python3 my_train.py

    With --requeue, the job calls it again if it ends with exit code 75. IPULAUNCH_ATTEMPT counts its attempts.
    """
    require_words(program, "ipulaunch submit program --pod 16 --scheduler slurm -- python3 my_train.py")
    dry_run, as_json, run_dir = values.pop("dry_run"), values.pop("as_json"), values.pop("run_dir")
    if verbosity_from(values) == 1:
        values["poprun_verbose"] = True
    job = job_options_from(values)
    task = ProgramTask(Program(program, survival_from(values)), program_settings(values))
    engine = cluster_engine(values["engine"])
    options = launch_options_from(values, elsewhere=job.is_in_pods)

    def prepared(path: Path) -> Submission:
        return prepare(task, options, engine, job.scheduler, job.site, job.given, path)

    submit_or_print(prepared, PROGRAM, run_dir, dry_run=dry_run, as_json=as_json)


with_job_options(_submit_program)
