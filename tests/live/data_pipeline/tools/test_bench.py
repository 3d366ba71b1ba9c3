"""A measurement as it runs: every instance is a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import warnings
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.data_pipeline.tools import bench
from ipulaunch.data_pipeline.tools.bench import PIPELINES, Task, run
from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records


@pytest.fixture(autouse=True)
def _tracker() -> None:
    """Starts the helper process of multiprocessing, which warns where a test of the launcher has ended the last one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resource_tracker.ensure_running()


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """A CosmoFlow set of 3 files with 1, 2 and 3 records."""
    (tmp_path / "train").mkdir()
    for number in range(3):
        volume = np.full((8, 8, 8, 4), number + 1, np.int16)
        record = encode_example({"x": volume.tobytes(), "y": np.zeros(4, np.float32)})
        write_records(tmp_path / "train" / f"{number}.tfrecord", [record] * (number + 1))
    return tmp_path


def test_a_measurement_has_a_row_for_each_pipeline_and_ratios(volumes: Path) -> None:
    events: List[Dict[str, Any]] = []
    options = {"workload": "cosmoflow", "data_dir": str(volumes), "instances": 2, "seconds": 0.3}
    result = run(options, events.append)
    assert [row["pipeline"] for row in result["rows"]] == list(PIPELINES)
    numbers = [value for row in result["rows"] for value in row.values() if isinstance(value, float)]
    assert len(numbers) == 7 * len(PIPELINES) and min(numbers) > 0
    assert all(len(row["rounds"]) == 5 for row in result["rows"])
    ratios = [f"ours / {other}{unit}" for other in ("reference", "limit") for unit in ("", ", per core-second")]
    assert list(result["ratios"]) == list(result["ratio_spreads"]) == ratios
    assert events[-1] == {"event": "progress", "what": "measurements", "done": 15, "total": 15}


def test_cold_files_are_measured_beside_warm_ones(volumes: Path) -> None:
    options = {"workload": "cosmoflow", "data_dir": str(volumes), "instances": 1, "seconds": 0.3, "cold": True}
    try:
        result = run(options, lambda event: None)
    except NotReadyError as error:  # on a file system in memory
        assert "cannot be read cold" in error.message
        return
    assert [row["pipeline"] for row in result["rows"]] == [*PIPELINES, *(f"{name}, cold" for name in PIPELINES)]
    assert {"ours / reference", "ours / reference, cold", "ours / limit, cold, per core-second"} <= set(
        result["ratios"]
    )


def test_every_pass_begins_after_as_many_samples() -> None:
    begun: List[int] = []
    passes = bench.Passes(5, lambda: begun.append(1))
    times = [passes.count(2) for _ in range(6)]
    assert len(begun) == 2 and [time > (0.0, 0.0) for time in times] == [False, False, True, False, False, True]


def test_a_damaged_set_ends_a_measurement_as_a_data_error(volumes: Path) -> None:
    damaged = volumes / "train" / "2.tfrecord"
    damaged.write_bytes(damaged.read_bytes()[:-30] + b"\xff" * 30)  # data and checksum of its last record
    options = {"workload": "cosmoflow", "data_dir": str(volumes), "instances": 1, "seconds": 0.3}
    with pytest.raises(DataError, match=re.escape(f"{damaged}, record 2 at byte ")):
        run(options, lambda event: None)


def test_nothing_is_measured_to_its_end_for_nobody(volumes: Path) -> None:
    task = Task("cosmoflow", str(volumes), 0, 1, tuple(os.sched_getaffinity(0)))
    with pytest.raises(KeyboardInterrupt), bench._instance(task) as connection:
        connection.recv()
        (process,) = multiprocessing.active_children()
        connection.send(("ours", 600.0))
        raise KeyboardInterrupt
    assert process.exitcode == -signal.SIGTERM
