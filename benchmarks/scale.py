"""How the input pipelines of one instance scale from 1 to 32 cores: simulated, so that a machine of few cores shows it.

What lets other threads run and takes long (ImageNet: reading, checksums, decoding and scaling; CosmoFlow: reading and
checksums) is replaced by a sleep for as long as it was measured to take, as if each thread had a core of its own. What
is left is what can stand in the way: the interpreter, which one thread holds at a time, and the queues of tf.data. The
conventional pipeline is measured in the same form, with sleeps inside of TensorFlow's graph, each of which costs 0.1 ms
of a real core. `sleep alone` is what threads reach that do nothing else: the machine's own limit. All take turns; what
the others are worth is relative to it, and the medians count.

Interpreter time is the processor time of the pipeline's Python functions when those calls do nothing. Exit code 1: a
goal is missed. One core of this machine must be free: where others use it, start this with `nice -n -15`, as root. With
the extra `report`, --out also gets pictures.

    .venv/bin/python benchmarks/scale.py [--seconds 1.5] [--rounds 3] [--out DIR]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ipulaunch.data_pipeline.tools import bench_set

CORES = (1, 2, 4, 8, 16, 32)
GOALS = {16: 0.85, 32: 0.7}  # of as many times one core
MOST_INTERPRETER_US = 25.0  # of an image, on Python 3.11 and later
# An Ethernet of 100 Gb/s carries 745 volumes of 16.8 MB a second to the IPUs of a host, whatever its cores.
LEAST_VOLUMES_PER_S = 2 * 745.0
OURS, SLEEP = "ours", "sleep alone"

Rates = Dict[Tuple[str, int], List[float]]


def main(words: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.5, help="for each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="directory for the pictures")
    options = parser.parse_args(words)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    missed: List[str] = []
    for workload in ("imagenet", "cosmoflow"):
        with tempfile.TemporaryDirectory(prefix="ipulaunch-scale-") as directory:
            bench_set.make(workload, Path(directory), lambda event: None)
            case = case_of(workload, Path(directory))
            rates = measure(case, options.rounds, options.seconds)
        times_one = gains(rates)
        show(case, rates, times_one)
        missed += misses(case, rates, times_one)
        if options.out is not None:
            draw(case, times_one, options.out)
    for miss in missed:
        print(f"missed: {miss}")
    return 1 if missed else 0


def case_of(workload: str, directory: Path) -> Any:
    import scale_cases

    return {"imagenet": scale_cases.images, "cosmoflow": scale_cases.volumes}[workload](directory)


def measure(case: Any, rounds: int, seconds: float) -> Rates:
    """Samples/s of each pipeline with each number of cores, round after round."""
    rates: Rates = {}
    for _ in range(rounds):
        for cores in CORES:
            for name, pipeline in case.pipelines.items():
                rates.setdefault((name, cores), []).append(rate(pipeline(cores), cores, seconds))
    return rates


def rate(batches: Iterator[int], cores: int, seconds: float) -> float:
    """Samples/s, after what was read ahead is used up."""
    for _ in range(12 * cores):
        next(batches)
    start = now = time.perf_counter()
    samples = 0
    while now < start + seconds:
        samples += next(batches)
        now = time.perf_counter()
    return samples / (now - start)


def gains(rates: Rates) -> Dict[Tuple[str, int], float]:
    """How many times one core each number of cores is worth: the medians of the rounds.

    Each rate counts as a part of what sleeping threads reached just after it, so that a busy machine does not count.
    """
    found: Dict[Tuple[str, int], float] = {}
    for (name, cores), many in rates.items():
        if name == SLEEP:
            found[name, cores] = statistics.median(many) / statistics.median(rates[SLEEP, 1])
            continue
        parts = zip(many, rates[SLEEP, cores], rates[name, 1], rates[SLEEP, 1])
        found[name, cores] = cores * statistics.median(
            rate / limit / (one / alone) for rate, limit, one, alone in parts
        )
    return found


def show(case: Any, rates: Rates, times_one: Dict[Tuple[str, int], float]) -> None:
    print(f"{case.name}: {case.slow_us:.0f} us a sample simulated, {case.interpreter_us:.1f} us in the interpreter")
    print(f"  cores {''.join(f'{name:>24}' for name in case.pipelines)}   samples/s (times one core; of the cores)")
    for cores in CORES:
        cells = [
            f"{statistics.median(rates[name, cores]):10.0f} ({gain:5.1f}; {gain / cores:.2f})"
            for name in case.pipelines
            for gain in [times_one[name, cores]]
        ]
        print(f"  {cores:5} {''.join(f'{cell:>24}' for cell in cells)}", flush=True)


def misses(case: Any, rates: Rates, times_one: Dict[Tuple[str, int], float]) -> List[str]:
    """The goals that are missed."""
    if case.name == "cosmoflow":
        best = statistics.median(rates[OURS, CORES[-1]])
        few = f"cosmoflow: {best:.0f} volumes/s with {CORES[-1]} cores, the goal is {LEAST_VOLUMES_PER_S:.0f}"
        return [few] if best < LEAST_VOLUMES_PER_S else []
    found = [
        f"{case.name}: {cores} cores are worth {times_one[OURS, cores]:.1f}, the goal is {goal * cores:.1f}"
        for cores, goal in GOALS.items()
        if times_one[OURS, cores] < goal * cores
    ]
    if sys.version_info >= (3, 11) and case.interpreter_us > MOST_INTERPRETER_US:
        found.append(f"{case.name}: {case.interpreter_us:.1f} us in the interpreter, the goal is {MOST_INTERPRETER_US}")
    return found


def draw(case: Any, times_one: Dict[Tuple[str, int], float], directory: Path) -> None:
    """A picture of the gains, where matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'ipulaunch[report]'")
        return
    directory.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    axes.plot(CORES, CORES, ":", color="grey", label="as many times one core")
    for name in case.pipelines:
        axes.plot(CORES, [times_one[name, cores] for cores in CORES], "o-", label=name)
    axes.set(title=case.name, xlabel="simulated cores", ylabel="times one core")
    axes.legend()
    figure.savefig(directory / f"scale-{case.name}.png", dpi=120)
    print(f"  {directory / f'scale-{case.name}.png'}")


if __name__ == "__main__":
    sys.exit(main())
