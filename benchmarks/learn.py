"""Does training learn? Small sets are made, trainings run on them through `ipulaunch`, and each has a goal to reach.

python benchmarks/learn.py                      CosmoFlow and CIFAR ResNet-8 on made sets
python benchmarks/learn.py --mnist DIRECTORY    also MNIST, from its published files: 98 % after 3 epochs
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

IPULAUNCH = [sys.executable, "-m", "ipulaunch.launcher"]
# A target drawn evenly from -1 to 1 has a variance of 1/3: the squared error of predicting the mean.
PREDICTING_THE_MEAN = 1 / 3

Result = Tuple[str, float, str, bool]  # what was learned, in how many seconds, how well, and whether that is enough


def ipulaunch(*words: str) -> None:
    done = subprocess.run([*IPULAUNCH, *words], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"ipulaunch {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")


def train(directory: Path, name: str, *words: str) -> Dict[str, Any]:
    run = directory / f"run-{name}"
    start = time.perf_counter()
    ipulaunch(*words, "--run-dir", str(run))
    summary: Dict[str, Any] = json.loads((run / "summary.json").read_text())
    return {**summary, "seconds": time.perf_counter() - start}


def cosmoflow(directory: Path) -> Result:
    data = str(directory / "cosmoflow")
    ipulaunch("data", "make", "cosmoflow", "--out", data, "--samples=1500", "--validation-samples=200", "--side=16")
    options = ["--side=16", "--n-conv-layers=3", "--n-train=1500", "--n-valid=200", "--num-epochs=8", "--dropout=0"]
    options += ["--micro-batch-size=4", "--optimizer=adam", "--learning-rate=0.001"]
    summary = train(directory, "cosmoflow", "cosmoflow", "--pod=4", "--data-dir", data, *options)
    factor = PREDICTING_THE_MEAN / summary["metrics"]["val_loss"]
    return "CosmoFlow, made set", summary["seconds"], f"{factor:.1f} times better than the mean (goal 2)", factor >= 2


def cifar10(directory: Path) -> Result:
    data = str(directory / "cifar10")
    ipulaunch("data", "make", "cifar10", "--out", data, "--samples=4000", "--validation-samples=500")
    options = ["--n-train=4000", "--n-valid=500", "--model=cifar_resnet8"]
    summary = train(directory, "cifar10", "cifar10", "--pod=4", "--dataset-path", data, *options)
    accuracy = summary["metrics"]["val_accuracy"]
    return "CIFAR ResNet-8, made set", summary["seconds"], f"accuracy {accuracy:.3f} (goal 0.9)", accuracy >= 0.9


def mnist(directory: Path, data: str) -> Result:
    summary = train(directory, "mnist", "mnist", "--no-rehearsal", "--dataset-path", data)
    accuracy = summary["metrics"]["val_accuracy"]
    return "MNIST, 3 epochs", summary["seconds"], f"accuracy {accuracy:.4f} (goal 0.98)", accuracy >= 0.98


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", metavar="DIRECTORY", help="the published MNIST files")
    arguments = parser.parse_args()
    failed: List[str] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        jobs: List[Callable[[], Result]] = [lambda: cosmoflow(directory), lambda: cifar10(directory)]
        if arguments.mnist:
            jobs.append(lambda: mnist(directory, arguments.mnist))
        for job in jobs:
            what, seconds, found, is_reached = job()
            print(f"{what:<26} {seconds:5.0f} s   {found}", flush=True)
            if not is_reached:
                failed.append(what)
    if failed:
        sys.exit(f"goal missed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
