"""The input pipelines of CosmoFlow and ImageNet beside the usual ones and the limit of the machine, and their scaling.

All numbers come from one run on the same cores, in turns; the ratios are what counts:

    .venv/bin/python benchmarks/input.py [SECONDS FOR EACH PIPELINE]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

from ipulaunch.data_pipeline.tools import bench_set
from ipulaunch.data_pipeline.tools.bench import run

TARGETS = {
    "cosmoflow": {"ours / reference": 10.0, "ours / limit": 0.5},
    "imagenet": {"ours / reference": 1.5, "ours / limit": 0.8},
}
SCALING_TARGET = 1.9
SCALING_ROUNDS = 3


def quiet(event: Dict[str, Any]) -> None:
    """Nothing is drawn: this machine is to measure."""


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    for workload, targets in TARGETS.items():
        with tempfile.TemporaryDirectory(prefix="ipulaunch-bench-") as directory:
            bench_set.make(workload, Path(directory), quiet)
            options = {"workload": workload, "data_dir": directory, "seconds": seconds}
            show(workload, run({**options, "instances": 1}, quiet), targets)
            for name, ratio in scaling(options).items():
                target = f" (target {SCALING_TARGET})" if name == "ours" else ""
                print(f"  two instances / one, {name}: {ratio:.2f}{target}", flush=True)


def show(workload: str, result: Dict[str, Any], targets: Dict[str, float]) -> None:
    print(f"{workload:<12} samples/s     MB/s  per core  first batch s  memory MB")
    for row in result["rows"]:
        print(
            f"  {row['pipeline']:<10} {row['samples_per_s']:9.1f} {row['mb_per_s']:8.0f} {row['per_core']:9.1f}"
            f" {row['first_batch_s']:14.2f} {row['memory_mb']:10.0f}"
        )
    for name, target in targets.items():
        print(f"  {name}: {result['ratios'][name]:.2f} (target {target})", flush=True)


def scaling(options: Dict[str, Any]) -> Dict[str, float]:
    """Two instances on a core each against one on one core, in turns; of the limit too, which is the machine's own."""
    allowed = os.sched_getaffinity(0)
    cores = sorted(allowed)[:2]
    if len(cores) < 2:
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
    return {name: statistics.median(rates[name, 2]) / statistics.median(rates[name, 1]) for name in pipelines}


if __name__ == "__main__":
    main()
