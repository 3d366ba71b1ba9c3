"""Every workload on two instances of the stand-in trains to the CPU backend's weights: real processes over Open MPI.

A launch runs many rows, so that TensorFlow is imported once in each process. By day one launch; at night one for each
workload, with so many rows that every pair of SDK, replicas, precision and remainder is in one. ResNet-50 has every
value in one, since its pairs are in the TensorFlow tier's matrix. A plain Estimator has one replica.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import pytest
from fixtures.matrix import WORKLOADS, Row, assert_trained_alike, covering_rows, few_rows, read
from fixtures.trainings import LONGEST_S, needs_estimators

PROGRAM = Path(__file__).parents[2] / "programs" / "matrix_rows.py"
BY_DAY = [
    Row("CosmoFlow", "3.1", 2, 2, "16.32", "repeat"),
    Row("MNIST", "2.6", 2, 1, "16.16", "pad"),
]
AT_NIGHT: Dict[str, List[Row]] = {
    name: (few_rows if workload.is_dear else covering_rows)(name, 2)
    for name, workload in WORKLOADS.items()
    if 2 in workload.instances
}
Launched = Callable[[str, Sequence[Row]], Path]


@pytest.fixture(scope="session")
def launched(once: Callable[..., Path], own_environment: Dict[str, str]) -> Launched:
    """What one launch of two instances has left of these rows."""

    def get(name: str, rows: Sequence[Row]) -> Path:
        def make(directory: Path) -> str:
            words = [sys.executable, "-m", "ipulaunch.launcher", "run", "--pod", "4", "--num-instances", "2"]
            words += ["--oversubscribe", "--engine", "openmpi", "--run-dir", "run", "--"]
            words += [sys.executable, str(PROGRAM), str(directory), json.dumps(rows)]
            done = subprocess.run(
                words, cwd=directory, env=own_environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=2 * LONGEST_S, check=False,
            )  # fmt: skip
            return "" if done.returncode == 0 else done.stdout.decode("utf-8", "replace")

        return once(f"two instances {name}".replace(" ", "-"), make)

    return get


def assert_trained_as_on_cpus(row: Row, where: Path) -> None:
    assert_trained_alike(row, read(where / row.directory), read(where / row.reference.directory))


@pytest.mark.parametrize("row", BY_DAY, ids=str)
def test_two_instances_train_as_on_cpus(row: Row, launched: Launched) -> None:
    assert_trained_as_on_cpus(row, launched("by day", BY_DAY))


def rows_of_the_night() -> List[Any]:
    marks = {name: [needs_estimators] if WORKLOADS[name].is_estimator else [] for name in AT_NIGHT}
    return [pytest.param(row, id=str(row), marks=marks[name]) for name, rows in AT_NIGHT.items() for row in rows]


@pytest.mark.night
@pytest.mark.parametrize("row", rows_of_the_night())
def test_every_workload_trains_on_two_instances_as_on_cpus(row: Row, launched: Launched) -> None:
    """At night; see above."""
    assert_trained_as_on_cpus(row, launched(row.workload, AT_NIGHT[row.workload]))
