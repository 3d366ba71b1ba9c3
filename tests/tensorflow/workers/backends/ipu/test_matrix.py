"""Every workload on the stand-in of every SDK trains to the CPU backend's weights: one instance, under PopDist.

By day a row of each workload, and at least one of each SDK. What test_backend.py and test_pipeline.py train by
day is not repeated, and ResNet-50, which takes half a minute and more, trains at night.

At night all combinations of SDK, replicas, precision and remainder; for ResNet-50 so many that every pair of values is
in one. Two instances are in tests/live/workers/backends/ipu/test_matrix.py.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, Callable, List

import pytest
import tensorflow as tf
from fixtures.matrix import (
    WORKLOADS,
    Reference,
    Row,
    assert_trained_alike,
    covering_rows,
    every_row,
    read,
)
from fixtures.matrix_runs import train_on_cpus, train_on_ipus

pytestmark = pytest.mark.usefixtures("smooth")

BY_DAY = [
    Row("CosmoFlow", "2.6", 1, 2, "16.16", "pad"),
    Row("MNIST", "3.0", 1, 2, "16.32", "repeat"),
    Row("CIFAR ResNet-8", "3.1", 1, 2, "16.16", "pad"),
    Row("Estimator", "3.1", 1, 1, "32.32", "repeat"),
    Row("replica Estimator", "2.6", 1, 2, "32.32", "drop"),
    Row("pipeline Estimator", "3.4", 1, 2, "32.32", "pad"),
]
AT_NIGHT: List[Row] = [
    row
    for name, workload in WORKLOADS.items()
    for row in (covering_rows if workload.is_dear else every_row)(name, 1)
    if row not in BY_DAY
]


@pytest.fixture(scope="session")
def on_cpus(once: Callable[..., Path]) -> Callable[[Reference], Path]:
    """What a training on the CPU backend has left, in whichever process of these tests it ran."""

    def get(reference: Reference) -> Path:
        def make(path: Path) -> str:
            try:
                train_on_cpus(reference, path)
            except Exception:  # noqa: BLE001 - every row that needs it tells why
                return traceback.format_exc()
            return ""

        return once(reference.directory, make)

    return get


def assert_trains_as_on_cpus(row: Row, on_cpus: Callable[[Reference], Path], path: Path) -> None:
    if WORKLOADS[row.workload].is_estimator and not hasattr(tf, "estimator"):
        pytest.skip("this TensorFlow has no Estimators")
    expected = on_cpus(row.reference)
    train_on_ipus(row, path, expected)
    assert_trained_alike(row, read(path), read(expected))


@pytest.mark.parametrize("row", BY_DAY, ids=str)
def test_a_workload_trains_as_on_cpus(row: Row, on_cpus: Any, tmp_path: Path) -> None:
    assert_trains_as_on_cpus(row, on_cpus, tmp_path)


@pytest.mark.night
@pytest.mark.parametrize("row", AT_NIGHT, ids=str)
def test_every_workload_trains_as_on_cpus(row: Row, on_cpus: Any, tmp_path: Path) -> None:
    """At night; see above."""
    assert_trains_as_on_cpus(row, on_cpus, tmp_path)
