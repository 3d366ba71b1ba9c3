from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.configs.run_directory import RunDirectory


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
