from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.workers.report import draw_curves

pytestmark = pytest.mark.core

ROWS: List[Dict[str, Any]] = [
    {"update": 4, "epoch": 1, "loss": 0.5, "accuracy": 0.4, "samples_per_s": 9.0, "train_s": 1.0},
    {"update": 8, "epoch": 2, "loss": 0.3, "accuracy": 0.7, "samples_per_s": 9.5, "train_s": 2.0},
    {"checkpoint": "update-00000008", "update": 8, "epoch": 2, "val_loss": 0.4, "val_accuracy": 0.6},
]


def width_of(picture: Path) -> int:
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    return int.from_bytes(data[16:20], "big")


def test_every_measure_has_a_panel(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = RunDirectory(tmp_path)
    draw_curves(run, ROWS)
    wide = width_of(run.curves("png"))
    assert "<svg" in run.curves("svg").read_text()
    draw_curves(run, [{"update": 4, "epoch": 1, "loss": 0.5}])
    assert wide == 3 * width_of(run.curves("png"))  # loss, accuracy and samples/s beside one alone


def test_nothing_is_drawn_of_nothing_or_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_curves(RunDirectory(tmp_path), [])  # as where the programs were only compiled
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draw_curves(RunDirectory(tmp_path), ROWS)
    assert not list(tmp_path.iterdir())
