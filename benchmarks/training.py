"""How fast is training through `ipulaunch`, beside plain Keras on the same cores with the same global batch?

    python benchmarks/training.py [ROUNDS]

Every round runs, one after the other, for each workload: `ipulaunch` with two instances of one core each, plain Keras
`fit` in one process on two cores, and, where Horovod is installed, the same with two of its processes of one core each.
Compilation is left out of all. Then, again with two instances, an update called in a bare loop beside the same update
through all of `fit`, the records and the agreement on whether to stop: the difference is what `ipulaunch` adds. Last,
the processor time of recording what an update spends its time on. Figures are ratios; absolute times mean little on a
shared machine. Exit code 1: one has missed its goal.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Sequence

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import Log
from ipulaunch.launcher.supervise.progress import Follower
from ipulaunch.topology.planning.plan import from_json

REPLICAS = 4
HAS_HOROVOD = importlib.util.find_spec("horovod") is not None
# Settings of each workload.
JOBS: Dict[str, List[str]] = {
    "cosmoflow": ["data.side=32", "data.n_train=128", "model.dropout=0", "training.micro_batch_size=4"],
    "cifar10": ["data.n_train=2048", "training.micro_batch_size=16"],
}
LEAST_RATIO, MOST_ADDED, MOST_RECORDING = 1.0, 0.03, 0.01
KEYS = ("samples_per_s", "bare", "recording")  # one is in each line of figures
LAUNCHER = [sys.executable, "-m", "ipulaunch.launcher"]
TWO_INSTANCES = ["--engine=openmpi", "--num-instances=2", "--host-layout=1x2"]
COMMON = ["training.gradient_accumulation_count=1", "training.num_epochs=4", "training.validation=false"]
COMMON += ["training.ckpts_per_epoch=0", "training.deterministic=false"]


def through_ipulaunch(name: str, directory: Path) -> float:
    run = directory / f"{name}-{len(list(directory.iterdir()))}"
    command = [*LAUNCHER, name, f"--pod={REPLICAS}", *TWO_INSTANCES, "--run-dir", str(run)]
    command += [word for text in (*JOBS[name], *COMMON) for word in ("--set", text)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return rate_of(run)


def rate_of(run: Path) -> float:
    """Samples per second by the clock, with all that is done between updates: from the first log, at the end of the
    epoch that compiles, to the last."""
    with contextlib.closing(Follower(RunDirectory(run), 1)) as follower:
        recorded = itertools.chain.from_iterable(iter(follower.look, []))
        (first_ns, first), *_, (last_ns, last) = [(ns, each) for _, ns, each in recorded if isinstance(each, Log)]
    updates, seconds = last.update - first.update, (last_ns - first_ns) / 1e9
    return float(updates * from_json((run / "plan.json").read_text()).batch.global_size / seconds)


def in_a_process(name: str, what: str, *starter: str) -> Dict[str, float]:
    """The figures of `measure`, in a process of this program that may have another one to start it."""
    command = [*starter, sys.executable, str(Path(__file__).resolve()), what, name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if any(key in line for key in KEYS))
    figures: Dict[str, float] = json.loads(line[line.index("{") :])
    return figures


def through_horovod(name: str) -> float:
    starter = str(Path(sys.executable).with_name("horovodrun"))
    return in_a_process(name, "horovod", starter, "-np", "2", "-H", "localhost:2")["samples_per_s"]


def in_two_instances(name: str, directory: Path) -> Dict[str, float]:
    run = ["--run-dir", str(directory / f"{name}-overhead")]
    return in_a_process(name, "overhead", *LAUNCHER, "run", f"--ipus={REPLICAS}", *TWO_INSTANCES, *run, "--")


def cores_of(what: str) -> List[int]:
    """The cores of a measurement: Horovod's second process gets the second one."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if what == "keras":
        return cores
    place = int(os.environ.get("HOROVOD_LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")))
    return cores[place : place + 1]


def measure(what: str, name: str) -> Dict[str, float]:
    """Bind to two cores, or one, then import TensorFlow and measure; `ipulaunch run` has bound its instances."""
    if what != "overhead":
        os.sched_setaffinity(0, cores_of(what))
    from ipulaunch.configs.keras_2 import use_keras_2

    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    use_keras_2(os.environ)
    import training_cases

    setup = training_cases.settled(name, [*JOBS[name], *COMMON], REPLICAS)
    if what == "overhead":
        return training_cases.overhead(setup)
    if what == "recording":
        return training_cases.recording(setup)
    return training_cases.plain_fit(setup, with_horovod=what == "horovod")


def compare(name: str, rounds: int, directory: Path) -> List[str]:
    """Measure one workload and print the figures; returns the goals that were missed."""
    missed: List[str] = []
    ratios: Dict[str, List[float]] = {}
    for _ in range(rounds):
        ours = through_ipulaunch(name, directory)
        others = {"Keras": in_a_process(name, "keras")["samples_per_s"]}
        if HAS_HOROVOD:
            others["Horovod"] = through_horovod(name)
        for other, theirs in others.items():
            ratios.setdefault(other, []).append(ours / theirs)
        rates = ", ".join(f"{other} {theirs:.1f}" for other, theirs in others.items())
        print(f"{name}: ipulaunch {ours:.1f} samples/s, {rates}", flush=True)
    for other, found in ratios.items():
        ratio = statistics.median(found)
        print(f"{name}: ipulaunch / {other}, median of {rounds}: {ratio:.2f} (goal {LEAST_RATIO:g})")
        if ratio < LEAST_RATIO:
            missed.append(f"{name}: ipulaunch / {other} is {ratio:.2f}, the goal is {LEAST_RATIO:g}")
    figures = in_two_instances(name, directory)
    bare_ms, added = figures["bare"] * 1e3, figures["added"]
    print(f"{name}: an update takes {bare_ms:.1f} ms in a bare loop, {added:+.1%} in fit (goal below {MOST_ADDED:.0%})")
    if added >= MOST_ADDED:
        missed.append(f"{name}: fit adds {added:.1%} to an update, the goal is below {MOST_ADDED:.0%}")
    figures = in_a_process(name, "recording")
    part, most = figures["recording"] / figures["update"], f"{MOST_RECORDING:.0%}"
    print(f"{name}: recording the times of an update takes {part:.2%} of its processor time (goal below {most})")
    if part >= MOST_RECORDING:
        missed.append(f"{name}: recording the times takes {part:.2%} of an update, the goal is below {most}")
    return missed


def main(words: Sequence[str]) -> int:
    if len(words) == 2:
        print(json.dumps(measure(*words)))
        return 0
    rounds = int(words[0]) if words else 3
    with tempfile.TemporaryDirectory() as directory:
        missed = [miss for name in JOBS for miss in compare(name, rounds, Path(directory))]
    if not HAS_HOROVOD:
        print("Horovod is not installed: no comparison with it")
    for miss in missed:
        print(f"missed: {miss}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
