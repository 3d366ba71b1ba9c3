"""The command line of an export: whose settings it takes, and what becomes of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import List, NamedTuple, Optional

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.runs.directory import RunDirectory, records_of
from ipulaunch.configs.runs.job import Job, job_of
from ipulaunch.configs.settings.schema import with_value, with_whole_paths
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import WORKLOADS, resolve


class ExportRequest(NamedTuple):
    """What is exported, and where to."""

    job: Job  # with the settings of a training
    config: Optional[str]
    directory: Path
    version: int
    adds: bool  # the version to others
    iterations: int  # 0: as few as there can be
    is_pipelined: bool
    weights: Optional[Path]  # the run or the directory that has them


def read_request(argv: List[str]) -> ExportRequest:
    parser = argparse.ArgumentParser(
        prog="python -m ipulaunch.workers.serving",
        description="Export a model for servers, as ipulaunch export starts it. Events are JSON lines on stdout.",
    )
    parser.add_argument("workload", nargs="?", choices=sorted(WORKLOADS))
    parser.add_argument("--run-dir", type=Path, help="a run: its workload, its settings and its weights")
    parser.add_argument("--micro-batch-size", type=int, help="with --run-dir: the batch, instead of that of the run")
    parser.add_argument("--backend", choices=("ipu", "cpu"), default="ipu", help="what the model is exported for")
    parser.add_argument("--rehearsal", action="store_true", help="use the small job of the rehearsal: section")
    parser.add_argument("--config", help="a published configuration of the workload")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="assignments")
    parser.add_argument("--checkpoint-input-dir", type=Path, help="a run, or a directory with checkpoints")
    parser.add_argument("--export-dir", type=Path, required=True, help="where the version goes")
    parser.add_argument("--model-version", type=int, help="its number; 1 without it")
    parser.add_argument("--iterations", type=int, default=0, help="how often the program runs in a call")
    parser.add_argument("--pipeline-serving-model", action="store_true", help="divide the model as in training")
    arguments = parser.parse_args(argv)
    if (arguments.workload is None) == (arguments.run_dir is None):
        parser.error("name a workload or --run-dir")
    return ExportRequest(
        job=_job(arguments),
        config=arguments.config,
        directory=arguments.export_dir,
        version=arguments.model_version or 1,
        adds=arguments.model_version is not None,
        iterations=arguments.iterations,
        is_pipelined=arguments.pipeline_serving_model,
        weights=arguments.checkpoint_input_dir or arguments.run_dir,
    )


def _job(arguments: argparse.Namespace) -> Job:
    if arguments.run_dir is not None:
        return _job_of_run(records_of(arguments.run_dir), arguments)
    overrides = [assignment(text, "--set") for text in arguments.assignments]
    resolved = resolve(arguments.workload, rehearsal=arguments.rehearsal, config=arguments.config, overrides=overrides)
    return Job(arguments.workload, arguments.backend, with_whole_paths(resolved.settings))


def _job_of_run(run: RunDirectory, arguments: argparse.Namespace) -> Job:
    job = job_of(run)
    if job is None:
        raise DataError(f"{run.path} has no job.yaml that can be read", hint="name the run of a workload")
    size, settings = arguments.micro_batch_size, job.settings
    if size is not None:
        settings = with_value(settings, "training.micro_batch_size", size)
    return job._replace(backend=arguments.backend, settings=settings)
