"""Does a rehearsal run as fast as `ipulaunch capacity` says?

    .venv/bin/python benchmarks/capacity.py [ROUNDS]

For CosmoFlow and ImageNet, with sets on disk: every round predicts, from disk, preparation and computation as measured
on this machine, and then trains. Both use one core, so that nobody waits for another instance, and samples/s are those
of the processor time: others may use the same core. What a run does by the clock is shown beside it. Exit code 1: a
prediction is more than a quarter off.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence, Tuple

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import Log, Started
from ipulaunch.launcher.supervise.progress import Follower
from ipulaunch.topology.planning.plan import from_json

MOST_OFF = 0.25
POLL_S = 0.05
ROUNDS = 3
LAUNCHER = [sys.executable, "-m", "ipulaunch.launcher"]
REHEARSAL = ["--pod=4", "--engine=openmpi"]
COMMON = ["--no-validation", "--num-epochs=4", "--set", "training.ckpts_per_epoch=0"]
# Of each case: the workload, and its options beside the set.
CASES: Dict[str, List[str]] = {
    "cosmoflow": ["cosmoflow", "--n-train=512"],
    "imagenet": ["imagenet"],
    # A network that is so small that decoding takes most of the time.
    "imagenet, mostly decoding": ["imagenet", "--model=toy_model"],
}
SETS: Dict[str, List[str]] = {
    "cosmoflow": ["--samples=512", "--validation-samples=1", "--side=32"],
    "imagenet": ["--samples=256", "--validation-samples=8"],
}


class Rates(NamedTuple):
    """Samples/s of a run."""

    by_clock: float
    by_processor_time: float


def output_of(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def predicted(words: Sequence[str]) -> float:
    """Samples/s, if nobody else uses the core."""
    chain = json.loads(output_of([*LAUNCHER, "capacity", *words, "--json"]))
    return float(chain["samples_per_s"]["high"])


def trained(words: Sequence[str], run: Path) -> Rates:
    """Samples/s of a run with one instance, after the first epoch, which compiles."""
    process = subprocess.Popen([*LAUNCHER, *words, "--run-dir", str(run)], stderr=subprocess.DEVNULL)
    logs: List[Tuple[int, float, float]] = []  # updates, the clock, and the processor time then
    while not (run / "plan.json").exists() and process.poll() is None:
        time.sleep(POLL_S)
    with contextlib.closing(Follower(RunDirectory(run), 1)) as follower:
        pid = 0
        while process.poll() is None:
            for _, ns, event in follower.look():
                if isinstance(event, Started):
                    pid = event.pid
                elif isinstance(event, Log):
                    logs.append((event.update, ns / 1e9, processor_s(pid)))
            time.sleep(POLL_S)
    if process.returncode or len(logs) < 2:
        sys.exit(f"{' '.join(words)} ended with exit code {process.returncode} after {len(logs)} epochs")
    (before, start, start_s), (update, end, end_s) = logs[0], logs[-1]
    samples = (update - before) * from_json((run / "plan.json").read_text(encoding="utf-8")).batch.global_size
    return Rates(samples / (end - start), samples / (end_s - start_s))


def processor_s(pid: int) -> float:
    """The processor time that all threads of a process have taken; as late as now, if it has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return math.nan


def compare(name: str, rounds: int, directory: Path) -> List[str]:
    """Predict and train in turns; returns what is off."""
    workload, *options = CASES[name]
    place = directory / workload
    if not place.exists():
        output_of([*LAUNCHER, "data", "make", workload, "--out", str(place), *SETS[workload]])
    words = [workload, *REHEARSAL, "--data-dir", str(place), *options, *COMMON]
    ratios = []
    for turn in range(rounds):
        expected = predicted(words)
        found = trained(words, directory / f"run-{len(list(directory.iterdir()))}")
        ratios.append(expected / found.by_processor_time)
        print(
            f"{name}, round {turn + 1}: predicted {expected:.1f} samples/s, trained {found.by_processor_time:.1f} by"
            f" processor time ({found.by_clock:.1f} by the clock)",
            flush=True,
        )
    ratio = statistics.median(ratios)
    print(f"{name}: predicted / trained, median of {rounds}: {ratio:.2f} (within {MOST_OFF:.0%})", flush=True)
    return [] if abs(ratio - 1) <= MOST_OFF else [f"{name}: predicted / trained is {ratio:.2f}"]


def main(words: Sequence[str]) -> int:
    rounds = int(words[0]) if words else ROUNDS
    print(f"load of this machine before: {os.getloadavg()[0]:.1f}, on {len(os.sched_getaffinity(0))} cores", flush=True)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    with tempfile.TemporaryDirectory(prefix="ipulaunch-capacity-") as directory:
        missed = [miss for name in CASES for miss in compare(name, rounds, Path(directory))]
    for miss in missed:
        print(f"missed: {miss}, more than {MOST_OFF:.0%} off")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
