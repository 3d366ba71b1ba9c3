from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
import tensorflow as tf

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.workers.state.history import History

RUNS_OF_0_1_0 = Path(__file__).parents[3] / "golden" / "runs-0.1.0"


def row(update: int) -> Dict[str, Any]:
    return {"update": update, "epoch": update / 4, "loss": 1.0 / update}


def updates_in(run: RunDirectory) -> List[int]:
    return [json.loads(line)["update"] for line in run.metrics.read_text().splitlines()]


def points_in(run: RunDirectory) -> List[Tuple[str, int]]:
    return [
        (value.tag, event.step)
        for path in run.tensorboard.iterdir()
        for record in tf.data.TFRecordDataset(str(path))
        for event in [tf.compat.v1.Event.FromString(record.numpy())]
        for value in event.summary.value
    ]


@pytest.fixture()
def run(tmp_path: Path) -> RunDirectory:
    """A run with four logs, and a checkpoint that was validated."""
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    history = History(run)
    for update in (1, 2, 3, 4):
        history.add(row(update))
    history.add({"checkpoint": "update-00000002", "update": 2, "epoch": 0.5, "val_loss": 0.5})
    history.close()
    return run


@pytest.mark.parametrize("update", [0, 2, 4])
def test_a_run_that_is_taken_up_again_tells_of_every_update_once(run: RunDirectory, update: int) -> None:
    history = History(run)
    history.begin(run.metrics, update, ["update-00000002"])
    for later in range(update + 1, 7):
        history.add(row(later))
    history.close()
    assert updates_in(run) == [row["update"] for row in history.rows] == [1, 2, 3, 4, 5, 6]
    assert [line.split(",")[0] for line in run.history.read_text().splitlines()] == ["update", *"123456"]
    assert points_in(run) == [("loss", update) for update in range(1, 7)]


def test_what_is_not_validated_again_stays_in_every_form(run: RunDirectory) -> None:
    history = History(run)
    history.begin(run.metrics, 3, ["update-00000003"])
    history.close()
    assert updates_in(run) == [1, 2, 3, 2]
    assert history.rows[-1] == {"checkpoint": "update-00000002", "update": 2, "epoch": 0.5, "val_loss": 0.5}
    assert points_in(run) == [("loss", 1), ("loss", 2), ("loss", 3), ("val_loss", 2)]
    assert run.history.read_text().splitlines()[2] == "2,0.5,0.5,update-00000002,0.5"


def test_without_an_earlier_training_a_history_begins_empty(run: RunDirectory) -> None:
    history = History(run)
    assert updates_in(run) == [1, 2, 3, 4, 2], "a run that is refused has lost nothing"
    history.add(row(1))
    history.close()
    assert updates_in(run) == [1] and points_in(run) == [("loss", 1)]


@pytest.mark.parametrize(
    "line",
    [
        '{"update": 3, "lo',
        "[]",
        "7",
        '{"loss": 1.0}',
        '{"update": 2, "loss": "low"}',
        '{"update": 2, "checkpoint": 7}',
        '{"update": -1}',
    ],
)
def test_a_line_that_is_no_row_costs_no_other(run: RunDirectory, tmp_path: Path, line: str) -> None:
    lines = run.metrics.read_text().splitlines()
    earlier = tmp_path / "earlier.jsonl"
    earlier.write_text("\n".join([lines[0], line, *lines[1:]]) + "\n")
    history = History(run)
    history.begin(earlier, 3, ["update-00000002"])
    history.close()
    assert updates_in(run) == [1, 2, 3]


def test_the_history_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    history = History(run)
    history.begin(RUNS_OF_0_1_0 / "done" / "metrics.jsonl", 16)
    history.close()
    assert [row.get("checkpoint") for row in history.rows] == [None, "update-00000016"]
    assert ("val_mae", 16) in points_in(run)


def test_an_earlier_history_that_is_not_there_is_only_missed(run: RunDirectory, tmp_path: Path) -> None:
    history = History(run)
    history.begin(tmp_path / "none.jsonl", 3)
    history.close()
    assert updates_in(run) == []
