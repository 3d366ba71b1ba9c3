"""What `ipulaunch capacity` makes of the measurements of a task."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.launcher.cli import data_tasks

FAKE = Path(__file__).parents[4] / "fakes" / "data_task.py"
Run = Callable[..., Any]
RESULT = {
    "event": "result",
    "form": "gzip",
    "uses_isal": True,
    "stored_bytes": 1e6,
    "samples_per_core_s": {"low": 10.0, "high": 12.0},
}


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Callable[[], Any]]:
    """Says what the fake task does; gives back a look at how it was called."""
    seen = tmp_path / "seen.json"
    monkeypatch.setattr(data_tasks, "task_argv", lambda task: [sys.executable, "-IS", str(FAKE), task])
    monkeypatch.setenv("FAKE_TASK_SEEN", str(seen))

    def script(*events: Any, exit_code: int = 0) -> Callable[[], Any]:
        monkeypatch.setenv("FAKE_TASK", json.dumps({"events": events, "exit_code": exit_code}))
        return lambda: json.loads(seen.read_text())

    return script


def test_what_is_measured_replaces_what_is_assumed(task: Any, tmp_path: Path, ipulaunch: Run) -> None:
    seen = task(RESULT)
    outcome = ipulaunch("capacity", "cosmoflow", "--pod", "16", "--data-dir", str(tmp_path), "--json")
    data = json.loads(outcome.out)
    assert data["inputs"]["form"] == "gzip"
    assert data["inputs"]["stored"]["origin"] == "measured"
    prepare = data["inputs"]["prepare"]
    assert (prepare["origin"], prepare["low"]) == ("assumed", pytest.approx(6.7))  # the cores of a POD are others
    options = seen()["options"]
    assert seen()["task"] == "capacity"
    assert {name: options[name] for name in ("form", "is_made", "reads_disk")} == {
        "form": "records",
        "is_made": False,
        "reads_disk": False,
    }


def test_without_tensorflow_a_warning_says_that_nothing_is_measured(task: Any, ipulaunch: Run) -> None:
    task({"event": "error", "message": "capacity needs numpy", "hint": "install it", "exit_code": 4}, exit_code=4)
    outcome = ipulaunch("capacity", "cosmoflow", "--pod", "16", "--data-dir", "/not/here")
    assert outcome.code == 0 and "assumed" in outcome.out
    what = "nothing is measured, as capacity needs numpy; published and assumed rates are used"
    assert outcome.err.splitlines()[0] == f"warning: {what}"


def test_a_form_that_the_set_does_not_have_is_refused(task: Any, tmp_path: Path, ipulaunch: Run) -> None:
    task(RESULT)
    words = ("cosmoflow", "--pod", "16", "--data-dir", str(tmp_path), "--form", "records")
    outcome = ipulaunch("capacity", *words)
    assert outcome.code == 2 and f"--form is records, and {tmp_path} has gzip" in outcome.err
