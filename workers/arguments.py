"""The command line of an instance: a run directory, or the settings themselves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.schema import with_whole_paths
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import WORKLOADS, resolve
from ipulaunch.topology.planning.refusals import check_pipeline


def read_arguments(argv: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ipulaunch.workers",
        description="One instance of a training, as ipulaunch, poprun or mpirun start it; alone when started by hand.",
    )
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--backend", choices=("ipu", "cpu"), help="where the model runs; default: ipu")
    parser.add_argument(
        "--num-replicas", type=int, metavar="N", help="replicas of a process that is alone, without poprun or mpirun"
    )
    parser.add_argument("--rehearsal", action="store_true", help="use the small job of the rehearsal: section")
    parser.add_argument("--config", help="a published configuration of the workload")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="assignments")
    parser.add_argument(
        "--run-dir",
        type=lambda text: RunDirectory(Path(text)),
        help="a run directory that the launcher has made: its plan.json and job.yaml decide everything;"
        " without it, instance 0 makes one",
    )
    return parser.parse_args(argv)


def require_same_job(arguments: argparse.Namespace, job: Job) -> None:
    """Refuse a line whose workload or backend is not that of its run directory, whose job decides everything."""
    if arguments.workload != job.workload or arguments.backend not in (None, job.backend):
        given = f"{arguments.workload} --backend {arguments.backend or job.backend}"
        raise UsageError(
            f"the line says {given}, and {arguments.run_dir.job} says {job.workload} with backend {job.backend}",
            hint="start the command in command.txt of the run directory as it is",
        )


def job_of(arguments: argparse.Namespace) -> Job:
    """The job that the settings of a pasted line describe."""
    overrides = [assignment(text, "--set") for text in arguments.assignments]
    resolved = resolve(arguments.workload, rehearsal=arguments.rehearsal, config=arguments.config, overrides=overrides)
    check_pipeline(resolved.settings)
    for note in resolved.notes:
        print(f"note: {note}", file=sys.stderr)
    return Job(arguments.workload, arguments.backend or "ipu", with_whole_paths(resolved.settings))
