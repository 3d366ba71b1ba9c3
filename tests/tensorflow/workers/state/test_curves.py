from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.workers.state.curves import draw_curves

ROWS: List[Dict[str, Any]] = [
    {"update": 4, "epoch": 1, "loss": 0.5, "accuracy": 0.4, "samples_per_s": 9.0, "train_s": 1.0},
    {"update": 8, "epoch": 2, "loss": 0.3, "accuracy": 0.7, "samples_per_s": 9.5, "train_s": 2.0},
    {"checkpoint": "update-00000008", "update": 8, "epoch": 2, "val_loss": 0.4, "val_accuracy": 0.6},
]


def width_of(picture: Path) -> int:
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    return int.from_bytes(data[16:20], "big")


@pytest.mark.core
def test_every_measure_has_a_panel(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")  # which asks fc-list for fonts when it is first used
    run = RunDirectory(tmp_path)
    draw_curves(run, ROWS)
    wide = width_of(run.curves("png"))
    assert "<svg" in run.curves("svg").read_text()
    draw_curves(run, [{"update": 4, "epoch": 1, "loss": 0.5}])
    # Loss, accuracy and samples/s beside one alone; the margins are cut to what is drawn.
    assert wide > 2.5 * width_of(run.curves("png"))


def test_a_training_ends_well_where_matplotlib_is_broken(
    train_on_cpus: Callable[[Path, int], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ValueError('no such backend')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    run = RunDirectory(tmp_path / "run")
    train_on_cpus(run.path, 1)
    assert json.loads(run.summary.read_text())["updates"] and run.done(0).exists()
    events = [json.loads(line) for line in run.events(0).read_text().splitlines()]
    (warning,) = [event["message"] for event in events if event["event"] == "warning"]
    assert warning == "the curves could not be drawn: ValueError: no such backend"
