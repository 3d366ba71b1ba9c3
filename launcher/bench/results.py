"""Results of benchmarks: what each round of each variant gave, as records, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ipulaunch.configs.benchmarks import COMPILE_TIME
from ipulaunch.launcher.bench.variants import Variant

JSON_FILE, CSV_FILE = "benchmark_results.json", "benchmark_results.csv"
FORMAT = 1
DURATION = "test_duration"  # seconds from the start of a command to its end
# How a round or a variant ended.
OK, FAILED, TIMEOUT, NO_METRIC, INTERRUPTED, WRONG, NOT_RUN = (
    *("ok", "failed", "timeout", "no metric", "interrupted", "wrong specification", "not run"),
)


@dataclass(frozen=True)
class Round:
    """One run of a variant's command."""

    outcome: str
    exit_code: int
    values: Mapping[str, Optional[float]]  # metrics, the run time and the compile time
    started: str
    ended: str
    out: Path
    err: Path
    problems: Tuple[str, ...] = ()

    def to_json(self) -> Dict[str, Any]:
        return {
            "outcome": self.outcome,
            "exitcode": self.exit_code,
            "values": dict(self.values),
            "problems": list(self.problems),
            "start_time": self.started,
            "end_time": self.ended,
            "log_paths": {"out": str(self.out), "err": str(self.err)},
        }


@dataclass
class VariantResult:
    """What came of a variant; rounds are added as they end."""

    variant: Variant
    command: str
    error: str = ""  # why it cannot run
    rounds: List[Round] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """How it ended: the first round that is not good decides."""
        if self.error:
            return WRONG
        return next((each.outcome for each in self.rounds if each.outcome != OK), OK if self.rounds else NOT_RUN)

    @property
    def exit_code(self) -> Optional[int]:
        """The exit code of its command: of the first round that failed, else of the last."""
        failed = (each.exit_code for each in self.rounds if each.exit_code)
        return next(failed, self.rounds[-1].exit_code if self.rounds else None)

    def values(self, metric: str) -> List[float]:
        """The values of a metric in the rounds that have one."""
        found = (each.values.get(metric) for each in self.rounds)
        return [value for value in found if value is not None]

    @property
    def metrics(self) -> List[str]:
        """What it measures: its metrics, the run time and the compile time."""
        benchmark = self.variant.benchmark
        return [*(metric.name for metric in benchmark.metrics), *benchmark.derived, DURATION, COMPILE_TIME]

    def to_json(self) -> Dict[str, Any]:
        benchmark = self.variant.benchmark
        reductions = {metric.name: metric.reduction for metric in benchmark.metrics}
        results = {
            name: {"reduction": reductions.get(name, "value"), **summary(self.values(name))} for name in self.metrics
        }
        return {
            "benchmark_path": benchmark.origin,
            "benchmark_name": benchmark.name,
            "variant_name": self.variant.name,
            "params": dict(self.variant.parameters),
            "command": self.command,
            "outcome": self.outcome,
            "error": self.error,
            "exitcode": self.exit_code,
            "results": results,
            "rounds": [each.to_json() for each in self.rounds],
        }


def summary(values: Sequence[float]) -> Dict[str, Optional[float]]:
    """The mean and the spread of a metric over its rounds."""
    if not values:
        return {"mean": None, "min": None, "max": None}
    return {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}


def document(results: Sequence[VariantResult], *, rounds: int, started: str, is_complete: bool) -> Dict[str, Any]:
    """All results, with what a reader needs to compare them with others."""
    return {
        "format": FORMAT,
        "ipulaunch": version("ipulaunch"),
        "machine": this_machine(),
        "started": started,
        "rounds": rounds,
        "complete": is_complete,
        "variants": [result.to_json() for result in results],
    }


def as_json(results: Mapping[str, Any]) -> str:
    return json.dumps(results, indent=2, allow_nan=False) + "\n"


def as_csv(results: Sequence[VariantResult]) -> str:
    """A row for each variant, with the mean of each metric over the rounds; an empty cell where there is none."""
    always = ("throughput", "latency", COMPILE_TIME, DURATION)
    names = list(dict.fromkeys([*always, *(name for result in results for name in result.metrics)]))
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["benchmark name", "Variant name", *names, "rounds", "exitcode", "outcome"])
    for result in results:
        means = [summary(result.values(name))["mean"] for name in names]
        ending = [len(result.rounds), result.exit_code, result.outcome]
        writer.writerow([result.variant.benchmark.name, result.variant.name, *means, *ending])
    return text.getvalue()


def this_machine() -> Dict[str, Any]:
    """What makes numbers of two machines differ."""
    return {"host": platform.node(), "processor": _processor(), "cores": len(os.sched_getaffinity(0))}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
