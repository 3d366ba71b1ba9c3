"""Sets in the form that reads fastest, with our pipeline, beside published sets with the conventional one.

Each ratio is one of processor time: the same cores, in turns, the median of all rounds. Exit code 1: one is below its
target.

    .venv/bin/python benchmarks/sets.py [SECONDS FOR EACH MEASUREMENT] [KIND OF SET ...]
"""

from __future__ import annotations

import contextlib
import gzip
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

import numpy as np

from ipulaunch.data_pipeline.tools.bench import Task
from ipulaunch.data_pipeline.tools.new_set import encode_example, generator, write_records
from ipulaunch.data_pipeline.tools.pictures import paint

ROUNDS = 5
SIDE, VOLUMES, NAMES = 128, 2, 12  # links to each volume: gzip takes seconds for one
CLUMPS = 8  # voxels per edge of a clump of galaxies
PICTURE, PICTURES = (375, 500), 256
PREPARATIONS: Dict[str, Dict[str, Any]] = {
    "published": {},
    "shorter side 256": {"shorter_side": 256},
    "pixels": {"shorter_side": 256, "pixels": True},
}
IMAGE_TARGETS = {"shorter side 256": 2.0, "pixels": 6.0}


class Comparison(NamedTuple):
    """Our pipeline on one set, and the conventional pipeline on another."""

    workload: str
    ours: Path
    conventional: Path
    target: float


def quiet(event: Dict[str, Any]) -> None:
    """Nothing is drawn: this machine is to measure."""


def volumes(directory: Path) -> Iterator[Comparison]:
    """Counts that gzip packs to about a sixth, as those of the published set."""
    (directory / "train").mkdir()
    for number in range(VOLUMES):
        draw = generator(0, "train", number)
        clumps = draw.normal(size=(SIDE // CLUMPS, SIDE // CLUMPS, SIDE // CLUMPS, 1))
        density = np.exp(np.kron(clumps, np.ones((CLUMPS, CLUMPS, CLUMPS, 1))) - 0.5)
        counts = draw.poisson(density * [0.5, 0.8, 1.0, 1.2]).astype(np.int16)
        record = encode_example({"x": counts.tobytes(), "y": draw.random(4, np.float32)})
        first, *others = (directory / "train" / f"part-{name}-{number}.tfrecord" for name in range(NAMES))
        write_records(first, [record])
        first.write_bytes(gzip.compress(first.read_bytes(), 6))
        for other in others:
            other.symlink_to(first.name)
    yield Comparison("cosmoflow", directory, directory, 3.0)


def images(directory: Path) -> Iterator[Comparison]:
    """Pictures of 500 x 375, as published and prepared."""
    import tensorflow as tf

    from ipulaunch.data_pipeline.tools import build_imagenet

    for split, count in (("train", PICTURES), ("validation", 1)):
        folder = directory / "raw" / split / "n01"
        folder.mkdir(parents=True)
        for number in range(count):
            pixels, _ = paint(generator(0, split, number), 0, 10, *PICTURE)
            (folder / f"{number}.JPEG").write_bytes(tf.io.encode_jpeg(pixels, quality=96).numpy())
    options = {"raw": str(directory / "raw"), "shards": 8, "validation_labels": None, "workers": None}
    for name, more in PREPARATIONS.items():
        build_imagenet.run({**options, **more, "out": str(directory / name)}, quiet)
    for name, target in IMAGE_TARGETS.items():
        yield Comparison("imagenet", directory / name, directory / "published", target)


KINDS: Dict[str, Callable[[Path], Iterator[Comparison]]] = {"gzip": volumes, "prepared": images}


def main(words: Sequence[str]) -> int:
    seconds = float(words[0]) if words else 10.0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    missed: List[str] = []
    for kind in words[1:] or KINDS:
        with tempfile.TemporaryDirectory(prefix="ipulaunch-bench-") as directory:
            for comparison in KINDS[kind](Path(directory)):
                ratio = measured(comparison, seconds)
                name = f"{kind}, {comparison.ours.name}" if comparison.ours != comparison.conventional else kind
                print(f"{name}: ours / conventional: {ratio:.2f} (target {comparison.target})", flush=True)
                if ratio < comparison.target:
                    missed.append(f"{name} is {ratio:.2f}, the target is {comparison.target}")
    for miss in missed:
        print(f"missed: {miss}")
    return 1 if missed else 0


def measured(comparison: Comparison, seconds: float) -> float:
    """How many times fewer seconds of the processor our pipeline takes for a sample, in the median."""
    from ipulaunch.data_pipeline.tools.bench_pipelines import open_pipelines

    shares = tuple(sorted(os.sched_getaffinity(0)))
    pipelines = {
        name: open_pipelines(Task(comparison.workload, str(directory), 0, 1, shares)).pipelines[name]
        for name, directory in (("ours", comparison.ours), ("reference", comparison.conventional))
    }
    spent: Dict[str, List[float]] = {name: [] for name in pipelines}
    for _ in range(ROUNDS):
        for name, pipeline in pipelines.items():
            with contextlib.closing(pipeline()) as batches:  # type: ignore[type-var]
                take(batches, seconds / 4)  # what was read ahead, and the first use of everything
                spent[name].append(take(batches, seconds))
    for name, values in spent.items():
        milliseconds = ", ".join(f"{1e3 * value:.2f}" for value in values)
        print(f"  {comparison.workload}, {name}: {milliseconds} ms of the processor per sample")
    return statistics.median(spent["reference"]) / statistics.median(spent["ours"])


def take(batches: Iterator[int], seconds: float) -> float:
    """Seconds of the processor per sample."""
    samples, start, end = 0, time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        samples += next(batches)
    return (time.process_time() - start) / samples


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
