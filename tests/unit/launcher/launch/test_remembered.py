from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipulaunch.launcher.launch.remembered import remember, remembered_runs

Run = Callable[..., Any]


@pytest.fixture
def environ(tmp_path: Path) -> Dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def made_run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "plan.json").write_text("{}")
    return path


def test_each_run_is_remembered_once(tmp_path: Path, environ: Dict[str, str]) -> None:
    one, other = made_run(tmp_path / "one"), made_run(tmp_path / "böser Ort & mehr")
    for path in (one, other, one):
        remember(path, environ)
    assert sorted(remembered_runs(environ)) == sorted([one, other])
    assert len(list((tmp_path / "state" / "ipulaunch" / "runs").iterdir())) == 2


def test_a_run_that_has_gone_is_forgotten(tmp_path: Path, environ: Dict[str, str]) -> None:
    gone, unplanned = made_run(tmp_path / "gone"), made_run(tmp_path / "unplanned")
    for path in (gone, unplanned):
        remember(path, environ)
    shutil.rmtree(gone)
    (unplanned / "plan.json").unlink()
    assert remembered_runs(environ) == []
    (unplanned / "plan.json").write_text("{}")
    assert remembered_runs(environ) == [unplanned]  # only what has gone is forgotten
    made_run(gone)
    assert remembered_runs(environ) == [unplanned]


@pytest.mark.parametrize("state", ["file", "relative"])
def test_without_a_state_directory_nothing_is_remembered(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    environ = {"XDG_STATE_HOME": str(tmp_path / "file") if state == "file" else "state"}
    remember(made_run(tmp_path / "run"), environ)
    assert remembered_runs(environ) == []


def test_hostile_entries_are_passed_over(tmp_path: Path, environ: Dict[str, str]) -> None:
    remember(made_run(tmp_path / "run"), environ)
    entries = tmp_path / "state" / "ipulaunch" / "runs"
    (entries / "binary").write_bytes(b"\xff\x00")
    (entries / "nul").write_bytes(b"a\x00b")
    (entries / "large").write_text("x" * (1 << 25))
    (entries / "directory").mkdir()
    assert remembered_runs(environ) == [tmp_path / "run"]


def test_commands_find_remembered_runs(ipulaunch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = made_run(tmp_path / "elsewhere" / "mine")
    remember(path)
    assert str(path) in ipulaunch("ps").out
    assert str(path) not in ipulaunch("ps", "--runs-dir", "others").out
    assert str(path) in ipulaunch("status", "mine").out
    assert "did you mean mine?" in ipulaunch("status", "mime").err
