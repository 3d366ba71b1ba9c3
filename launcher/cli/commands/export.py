"""`ipulaunch export`: a model for servers, with the settings of a workload or of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Optional

import click

from ipulaunch.configs.messages import note
from ipulaunch.configs.runs.directory import RUNS
from ipulaunch.configs.settings.schema import whole_path
from ipulaunch.configs.settings.workloads import SUMMARIES
from ipulaunch.launcher.cli.export_output import print_or_run
from ipulaunch.launcher.cli.groups import WorkloadGroup
from ipulaunch.launcher.cli.options import PATH, SERVED_MODEL, Decorator, decorate, engine_from, with_help
from ipulaunch.launcher.cli.settings_options import settings_from, settings_options, workload_command
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.registry import choose_engine, refuse_silent_rehearsal
from ipulaunch.launcher.launch.exporting import ExportOptions, export_of_run, export_of_workload

_WEIGHTS = "training__checkpoint_input_dir"
_WEIGHTS_HELP = "A run, or a directory with checkpoints: the newest has the weights."

_OPTIONS: List[Decorator] = [
    click.option("--export-dir", type=PATH, required=True, help="Directory of the model; a version is a folder in it."),
    click.option(
        "--model-version",
        "version",
        type=click.IntRange(1),
        help="Number of the version. Default: 1. Without it, the directory has to be new or empty.",
    ),
    *SERVED_MODEL,
    click.option("--python", metavar="PATH", help="Python interpreter that exports."),
    click.option("--dry-run", is_flag=True, help="Print the line that exports, and stop."),
    click.option("--json", "as_json", is_flag=True, help="Print what has been exported as JSON."),
]


class Exports(WorkloadGroup):
    """One export command for each workload, and one for each run."""

    what = "workload or run"

    def resolve_command(self, ctx: click.Context, args: List[str]) -> Any:
        if args and _is_run(args[0]):
            return args[0], _export_run, args[1:]
        return super().resolve_command(ctx, args)


def _is_run(name: str) -> bool:
    """Whether it means a run, and not a workload."""
    if name in SUMMARIES or name.startswith("-"):
        return False
    return "/" in name or any(os.path.isdir(path) for path in (name, os.path.join(RUNS, name)))  # noqa: PTH112, PTH118


@click.group("export", cls=Exports, options_metavar="", subcommand_metavar="WORKLOAD|RUN [OPTIONS]")
def command() -> None:
    """Export a model for servers: ipulaunch export cifar10 --checkpoint-input-dir runs/NAME --export-dir models/cifar10

    RUN, a run directory or the name of one in runs/, stands for a workload with the settings and the weights of that
    run: ipulaunch export runs/NAME --export-dir models/cifar10
    """


@command.for_each_workload
def _export_workload(workload: str) -> click.Command:
    @workload_command(workload, f"Export a model of {workload} for servers.")
    @_with_options
    @settings_options(workload)
    def export(**values: Any) -> None:
        output = {name: values.pop(name) for name in ("dry_run", "as_json")}
        engine_given = engine_from(values)
        engine = _engine(engine_given, is_named=values["rehearsal"] is not None)
        options = _options_from(values, values.pop(_WEIGHTS))
        values.pop("engine")
        resolved = settings_from(workload, values, on_cpus=engine.is_rehearsal)
        settings = resolved.settings
        if options.weights is None:
            elsewhere = settings.training.checkpoint_input_dir or settings.estimator_run.model_dir
            options = options._replace(weights=Path(elsewhere) if elsewhere else None)
        line = export_of_workload(resolved, engine, options)
        print_or_run(line, engine, options, list(map(note, resolved.notes)), **output)

    with_help(export, {_WEIGHTS: f"{_WEIGHTS_HELP} Default: random weights."})
    return export


def _with_options(command: Any) -> Any:
    return decorate(command, _OPTIONS)


@click.command("RUN")
@_with_options
@click.option("--checkpoint-input-dir", _WEIGHTS, type=PATH, help=f"{_WEIGHTS_HELP} Default: the run itself.")
@click.option("--micro-batch-size", type=click.IntRange(1), help="Samples of a batch. Default: as in the run.")
def _export_run(micro_batch_size: Optional[int], **values: Any) -> None:
    """Export the model of a run for servers, with its settings and its newest checkpoint."""
    from ipulaunch.launcher.runs.finding import find_run

    output = {name: values.pop(name) for name in ("dry_run", "as_json")}
    engine = _engine(values["engine"], is_named=False)
    options = _options_from(values, values[_WEIGHTS])
    run = find_run(str(click.get_current_context().info_name), Path(RUNS))
    print_or_run(export_of_run(run, micro_batch_size, engine, options), engine, options, [], **output)


def _engine(name: Optional[str], *, is_named: bool) -> Engine:
    """The engine whose processors the model is for, found as for a training."""
    engine = choose_engine(name, dry_run=False)
    if not is_named:
        refuse_silent_rehearsal(engine, name, "--engine openmpi")
    return engine


def _options_from(values: Dict[str, Any], weights: Optional[str]) -> ExportOptions:
    """The options of an export, with whole paths; takes them out of `values`."""
    return ExportOptions(
        directory=Path(whole_path(str(values.pop("export_dir")))),
        version=values.pop("version"),
        iterations=values.pop("iterations"),
        is_pipelined=values.pop("pipeline_serving_model"),
        weights=Path(whole_path(str(weights))) if weights is not None else None,
        python=values.pop("python"),
    )
