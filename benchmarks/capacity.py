"""Does a rehearsal run as fast as `ipulaunch capacity` says?

    .venv/bin/python benchmarks/capacity.py [ROUNDS]

For CosmoFlow and ImageNet, with sets on disk: every round predicts, from disk, preparation and computation as measured
on this machine, and then trains. Where others use the same cores, both vary; the median of the rounds counts. Exit
code 1: a prediction is more than a quarter off.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Sequence

MOST_OFF = 0.25
ROUNDS = 3
LAUNCHER = [sys.executable, "-m", "ipulaunch.launcher"]
REHEARSAL = ["--pod=4", "--engine=openmpi"]
# Of each case: the workload, and its options beside the set.
CASES: Dict[str, List[str]] = {
    "cosmoflow": ["cosmoflow", "--no-validation", "--num-epochs=3"],
    "imagenet": ["imagenet", "--no-validation", "--num-epochs=3"],
    # A network that is so small that decoding takes most of the time.
    "imagenet, mostly decoding": ["imagenet", "--no-validation", "--num-epochs=6", "--model=toy_model"],
}
SETS: Dict[str, List[str]] = {
    "cosmoflow": ["--samples=128", "--validation-samples=32", "--side=32"],
    "imagenet": ["--samples=256", "--validation-samples=64"],
}


def output_of(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def predicted(words: Sequence[str]) -> float:
    """Samples/s, the middle of the range."""
    rate = json.loads(output_of([*LAUNCHER, "capacity", *words, "--json"]))["samples_per_s"]
    return float((rate["low"] * rate["high"]) ** 0.5)


def trained(words: Sequence[str], run: Path) -> float:
    """Samples/s of a run, compilation apart."""
    output_of([*LAUNCHER, *words, "--run-dir", str(run)])
    return float(json.loads((run / "summary.json").read_text(encoding="utf-8"))["samples_per_s"])


def compare(name: str, rounds: int, directory: Path) -> List[str]:
    """Predict and train in turns; returns what is off."""
    workload, *options = CASES[name]
    place = directory / workload
    if not place.exists():
        output_of([*LAUNCHER, "data", "make", workload, "--out", str(place), *SETS[workload]])
    words = [workload, *REHEARSAL, "--data-dir", str(place), *options]
    figures = []
    for turn in range(rounds):
        run = directory / f"run-{len(list(directory.iterdir()))}"
        figures.append((predicted(words), trained(words, run)))
        expected, found = figures[-1]
        print(f"{name}, round {turn + 1}: predicted {expected:.1f} samples/s, trained {found:.1f}", flush=True)
    ratio = statistics.median(expected / found for expected, found in figures)
    print(f"{name}: predicted / trained, median of {rounds}: {ratio:.2f} (within {MOST_OFF:.0%})", flush=True)
    return [f"{name}: predicted / trained is {ratio:.2f}"] if abs(ratio - 1) > MOST_OFF else []


def main(words: Sequence[str]) -> int:
    rounds = int(words[0]) if words else ROUNDS
    print(f"load of this machine before: {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory(prefix="ipulaunch-capacity-") as directory:
        missed = [miss for name in CASES for miss in compare(name, rounds, Path(directory))]
    for miss in missed:
        print(f"missed: {miss}, more than {MOST_OFF:.0%} off")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
