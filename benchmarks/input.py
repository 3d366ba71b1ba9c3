"""The input pipelines of CosmoFlow and ImageNet beside the usual ones and the limit of the machine, and their scaling.

All numbers come from one run on the same cores, in turns; the ratios are what counts. Those of the processor time have
the targets, as others may use the same cores. Exit code 1: a target is missed.

    .venv/bin/python benchmarks/input.py [SECONDS FOR EACH PIPELINE]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from ipulaunch.data_pipeline.tools import bench_set
from ipulaunch.data_pipeline.tools.bench import PIPELINES, run

SCALING = "two instances / one"
REFERENCE, LIMIT = (f"ours / {other}, per core-second" for other in ("reference", "limit"))
FIRST = "first batch of reference / ours, processor time"
TARGETS = {
    "cosmoflow": {REFERENCE: 10.0, LIMIT: 0.5, f"{SCALING}, ours": 1.9},
    "imagenet": {REFERENCE: 1.25, LIMIT: 0.8, FIRST: 0.5, f"{SCALING}, ours": 1.9},
}
SCALING_ROUNDS = 3


def quiet(event: Dict[str, Any]) -> None:
    """Nothing is drawn: this machine is to measure."""


def main(words: Sequence[str]) -> int:
    seconds = float(words[0]) if words else 15.0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    missed: List[str] = []
    for workload, targets in TARGETS.items():
        with tempfile.TemporaryDirectory(prefix="ipulaunch-bench-") as directory:
            bench_set.make(workload, Path(directory), quiet)
            options = {"workload": workload, "data_dir": directory, "seconds": seconds}
            alone = run({**options, "instances": 1}, quiet)
            show(workload, alone)
            ratios = {**alone["ratios"], **more_ratios(alone["rows"]), **scaling(options)}
        for name, ratio in ratios.items():
            target = targets.get(name)
            print(f"  {name}: {ratio:.2f}" + ("" if target is None else f" (target {target})"), flush=True)
            if target is not None and ratio < target:
                missed.append(f"{workload}: {name} is {ratio:.2f}, the target is {target}")
    for miss in missed:
        print(f"missed: {miss}")
    return 1 if missed else 0


def more_ratios(rows: Sequence[Dict[str, Any]]) -> Dict[str, float]:
    """What a pipeline would gain that did nothing but reach the limit, and how soon the first batch is there."""
    ours, reference, limit = (next(row for row in rows if row["pipeline"] == name) for name in PIPELINES)
    return {
        "limit / reference, per core-second": reference["processor_ms"] / limit["processor_ms"],
        FIRST: reference["first_batch_processor_s"] / ours["first_batch_processor_s"],
    }


def show(workload: str, result: Dict[str, Any]) -> None:
    print(f"{workload:<12} samples/s  CPU ms/sample     MB/s  per core  first batch s  memory MB")
    for row in result["rows"]:
        print(
            f"  {row['pipeline']:<10} {row['samples_per_s']:9.1f} {row['processor_ms']:14.3f}"
            f" {row['mb_per_s']:8.0f} {row['per_core']:9.1f}"
            f" {row['first_batch_s']:14.2f} {row['memory_mb']:10.0f}"
        )


def scaling(options: Dict[str, Any]) -> Dict[str, float]:
    """Two instances on a core each against one on one core, in turns; of the limit too, which is the machine's own."""
    allowed = os.sched_getaffinity(0)
    cores = sorted(allowed)[:2]
    if len(cores) < 2:
        print("  left out: two instances / one needs two cores, and there is one", flush=True)
        return {}
    pipelines = ["ours", "limit"]
    rates: Dict[Tuple[str, int], List[float]] = {(name, count): [] for name in pipelines for count in (1, 2)}
    try:
        for _ in range(SCALING_ROUNDS):
            for instances in (1, 2):
                os.sched_setaffinity(0, cores[:instances])
                for row in run({**options, "instances": instances, "pipelines": pipelines}, quiet)["rows"]:
                    rates[row["pipeline"], instances].append(row["samples_per_s"])
    finally:
        os.sched_setaffinity(0, allowed)
    return {
        f"{SCALING}, {name}": statistics.median(rates[name, 2]) / statistics.median(rates[name, 1])
        for name in pipelines
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
