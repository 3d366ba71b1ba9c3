from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.report.measures import SINCE_LAST, Measures, read_measures

ROWS: List[Dict[str, Any]] = [
    {"update": 4, "epoch": 1, "loss": 0.5, "samples_per_s": 9.0, "train_s": 1.0, "learning_rate": 0.1},
    {"update": 8, "epoch": 2, "loss": 0.3, "samples_per_s": 9.5, "train_s": 3.0, "learning_rate": 0.1},
    {"checkpoint": "update-00000008", "update": 8, "epoch": 2, "val_loss": 0.4, "val_accuracy": 0.6},
]


@pytest.fixture()
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def read(run: RunDirectory, *lines: str) -> Measures:
    run.metrics.write_text("".join(line + "\n" for line in lines))
    return read_measures(run, 16)


def test_each_measure_has_a_curve(run: RunDirectory) -> None:
    measures = read(run, *map(json.dumps, ROWS))
    assert measures.rows == 3
    assert list(measures.named("loss").values) == [0.5, 0.3]
    assert measures.names == ["loss", "accuracy"]
    # 4 updates of 16 samples in 2 seconds; before the first log there is none to count from.
    assert (list(measures.named(SINCE_LAST).updates), list(measures.named(SINCE_LAST).values)) == ([8.0], [32.0])


def test_lines_that_are_no_rows_are_left_out(run: RunDirectory) -> None:
    good = json.dumps(ROWS[0])
    wrong = ["", "[", "1", "null", '{"update": -1, "loss": 1}', '{"update": 1.5, "loss": 1}', '{"loss": 1}']
    wrong += ['{"update": true, "loss": 1}', '{"update": 9, "loss": "high", "mae": null, "list": []}', "x" * 100_000]
    measures = read(run, *wrong, good, good[:-5])
    assert measures.rows == 2 and list(measures.named("loss").values) == [0.5]
    assert not measures.named("mae").count


def test_a_line_without_an_end_takes_no_memory_and_hides_nothing_after_it(run: RunDirectory) -> None:
    measures = read(run, json.dumps(ROWS[0]), "9" * 3_000_000, json.dumps(ROWS[1]))
    assert list(measures.named("loss").values) == [0.5, 0.3]


def test_measures_beyond_those_that_are_kept_are_counted(run: RunDirectory) -> None:
    measures = read(run, json.dumps({"update": 1, **{f"m{number}": 1 for number in range(100)}}))
    assert len(measures.curves) == 40 and measures.left_out == 60


def test_a_run_without_metrics_has_no_curves(run: RunDirectory) -> None:
    assert read_measures(run, None) == Measures({}, 0, 0)
