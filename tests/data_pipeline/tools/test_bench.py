from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.tools.bench import PIPELINES, Task, core_shares, run
from ipulaunch.data_pipeline.tools.bench_pipelines import open_pipelines
from ipulaunch.data_pipeline.tools.record_writer import encode_example, write_records


@pytest.mark.parametrize(
    ("cores", "instances", "shares"),
    [
        ([0, 1], 1, [(0, 1)]),
        ([0, 1], 2, [(0,), (1,)]),
        ([4, 5, 9], 2, [(4,), (5, 9)]),
        ([0, 1], 3, [(0,), (1,), (0,)]),
    ],
)
def test_instances_share_the_cores(cores: List[int], instances: int, shares: List[Tuple[int, ...]]) -> None:
    assert core_shares(cores, instances) == shares


def volumes(directory: Path) -> None:
    (directory / "train").mkdir()
    for number in range(3):
        volume = np.full((8, 8, 8, 4), number + 1, np.int16)
        record = encode_example({"x": volume.tobytes(), "y": np.zeros(4, np.float32)})
        write_records(directory / "train" / f"{number}.tfrecord", [record] * (number + 1))


def pictures(directory: Path) -> None:
    encoded = tf.io.encode_jpeg(np.zeros((30, 40, 3), np.uint8)).numpy()
    records = [encode_example({"image/encoded": encoded, "image/class/label": [label]}) for label in range(1, 41)]
    write_records(directory / "train-00000-of-00001", records)


@pytest.mark.parametrize(("workload", "make", "size"), [("cosmoflow", volumes, 1), ("imagenet", pictures, 16)])
def test_every_pipeline_delivers_without_end(workload: str, make: Any, size: int, tmp_path: Path) -> None:
    make(tmp_path)
    pipelines, record_mb = open_pipelines(Task(workload, str(tmp_path), 0, 1, (0,)))
    assert set(pipelines) == set(PIPELINES) and 0 < record_mb < 1
    for name in ("ours", "reference"):
        batches = pipelines[name]()
        assert [next(batches) for _ in range(8)] == [size] * 8
    limit = pipelines["limit"]()
    assert sum(next(limit) for _ in range(12)) >= 12


def test_a_measurement_has_a_row_for_each_pipeline_and_ratios(tmp_path: Path) -> None:
    volumes(tmp_path)
    events: List[Dict[str, Any]] = []
    options = {"workload": "cosmoflow", "data_dir": str(tmp_path), "instances": 2, "seconds": 0.3}
    result = run(options, events.append)
    assert [row["pipeline"] for row in result["rows"]] == list(PIPELINES)
    assert all(row[key] > 0 for row in result["rows"] for key in row if key != "pipeline")
    assert set(result["ratios"]) == {"ours / reference", "ours / limit"}
    assert events[-1] == {"event": "progress", "what": "measurements", "done": 9, "total": 9}


def test_a_set_that_is_not_there_is_a_data_error(tmp_path: Path) -> None:
    options = {"workload": "imagenet", "data_dir": str(tmp_path), "instances": 1, "seconds": 0.3}
    with pytest.raises(DataError, match="there are no train-NNNNN-of-NNNNN files"):
        run(options, lambda event: None)
