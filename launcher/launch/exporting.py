"""The line of an export: one process, which loads TensorFlow and writes a version of a model."""

from __future__ import annotations

from pathlib import Path
from typing import List, NamedTuple, Optional

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.exports import refuse_occupied
from ipulaunch.configs.runs.job import set_options
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.launch.earlier_runs import require_same_network
from ipulaunch.launcher.launch.needs import require_python
from ipulaunch.topology.planning.refusals import check_pipeline


class ExportOptions(NamedTuple):
    """Where a model is exported to, and how."""

    directory: Path
    version: Optional[int] = None
    iterations: Optional[int] = None
    is_pipelined: bool = False
    weights: Optional[Path] = None
    python: Optional[str] = None


def export_of_workload(resolved: Resolved, engine: Engine, options: ExportOptions) -> Command:
    """The line that exports a workload with these settings. Refuses the weights of a run of another network."""
    check_pipeline(resolved.settings)
    if options.weights is not None and options.weights.is_dir():
        require_same_network(options.weights, resolved)
    is_small = ["--rehearsal"] if resolved.rehearsal else []
    return _line(engine, options, [resolved.workload], [*is_small, *set_options(resolved)])


def export_of_run(run: Path, micro_batch_size: Optional[int], engine: Engine, options: ExportOptions) -> Command:
    """The line that exports the network of a run, with its settings."""
    size = [] if micro_batch_size is None else ["--micro-batch-size", str(micro_batch_size)]
    return _line(engine, options, ["--run-dir", str(run)], size)


def require_ready(engine: Engine, options: ExportOptions) -> None:
    """Refuse an export that this machine or its directories cannot have."""
    if not engine.is_rehearsal:  # one process on CPUs needs no mpirun
        engine.require()
    require_python(_python(engine, options))
    refuse_occupied(options.directory, options.version or 1, adds=options.version is not None)
    if options.weights is not None and not options.weights.is_dir():
        raise DataError(f"there is no directory {options.weights}", hint="check --checkpoint-input-dir")


def _line(engine: Engine, options: ExportOptions, whose: List[str], settings: List[str]) -> Command:
    words = [_python(engine, options), "-m", "ipulaunch.workers.serving", *whose, "--backend", engine.backend]
    words += [*settings, "--export-dir", str(options.directory)]
    for flag, value in (
        ("--model-version", options.version),
        ("--iterations", options.iterations),
        ("--checkpoint-input-dir", options.weights),
    ):
        words += [flag, str(value)] if value is not None else []
    words += ["--pipeline-serving-model"] if options.is_pipelined else []
    return Command(tuple(words))


def _python(engine: Engine, options: ExportOptions) -> str:
    return engine.python(LaunchOptions(python=options.python))
