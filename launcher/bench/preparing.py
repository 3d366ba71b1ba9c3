"""Variants made ready to run, before the first of them does."""

from __future__ import annotations

from pathlib import Path
from typing import List, Mapping, NamedTuple, Sequence

from ipulaunch.configs.benchmarks import Benchmark
from ipulaunch.configs.errors import SettingsError
from ipulaunch.launcher.bench import variants
from ipulaunch.launcher.bench.results import VariantResult
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.launch.redaction import redact


class Prepared(NamedTuple):
    """A variant that is ready to run, or whose result says why it is not."""

    result: VariantResult
    command: Command
    logs: Path  # of all its rounds


def prepare(benchmarks: Sequence[Benchmark], environ: Mapping[str, str], log_dir: Path) -> List[Prepared]:
    """Every variant of these benchmarks, with its command and the place of its logs."""
    found = [variant for benchmark in benchmarks for variant in variants.variants_of(benchmark)]
    names = variants.directory_names(found)
    prepared = []
    for variant in found:
        result = VariantResult(variant, redact([" ".join(variant.benchmark.cmd.split())])[0])
        command = Command(())
        try:
            result.command = redact([" ".join(variants.command_line(variant).split())])[0]
            command = variants.command_of(variant, environ)
            _require_directory(variant.benchmark)
        except SettingsError as error:
            result.error = f"{error.message}{f' ({error.hint})' if error.hint else ''}"
        prepared.append(Prepared(result, command, log_dir / names[variant.name]))
    return prepared


def _require_directory(benchmark: Benchmark) -> None:
    if benchmark.directory is not None and not benchmark.directory.is_dir():
        hint = "location is relative to the directory of the specification"
        raise SettingsError(f"{benchmark.origin}: there is no directory {benchmark.directory}", hint=hint)
