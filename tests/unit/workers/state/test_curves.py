from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.workers.state.curves import draw_curves

pytestmark = pytest.mark.core

ROWS: List[Dict[str, Any]] = [{"update": 4, "epoch": 1, "loss": 0.5}]


def test_nothing_is_drawn_of_nothing_or_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_curves(RunDirectory(tmp_path), [])  # as where the programs were only compiled
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draw_curves(RunDirectory(tmp_path), ROWS)
    assert not list(tmp_path.iterdir())
