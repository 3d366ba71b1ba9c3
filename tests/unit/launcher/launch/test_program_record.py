from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.launcher.launch import program_record
from ipulaunch.launcher.launch.program import Program

PROGRAM = Program(
    ("python3", "my train.py", "", "--a=\n"), Survival(max_restarts=3, grace_s=7.5, restart_backoff_s=0.0)
)
TEXT = program_record.to_json(PROGRAM, "cpu")


def test_what_is_written_is_read_back() -> None:
    assert program_record.from_json(TEXT, "it") == program_record.ProgramRecord(PROGRAM, "cpu")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("format", 2),
        ("backend", "gpu"),
        ("program", []),
        ("program", ["a", 1]),
        ("survival", {"grace_s": -1}),
        ("x", 1),
    ],
)
def test_what_is_no_record_is_refused(name: str, value: Any) -> None:
    data = {**json.loads(TEXT), name: value}
    data = {key: each for key, each in data.items() if key != "x"} if name != "x" else {"x": 1}
    with pytest.raises(DataError, match="it does not say which program to call"):
        program_record.from_json(json.dumps(data), "it")


def test_a_program_with_a_secret_is_not_called_again(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.program.write_text(program_record.to_json(Program(("x", "--token=hunter2")), "cpu"))
    assert "hunter2" not in run.program.read_text()
    with pytest.raises(UsageError, match="a secret among the words of its program is not kept"):
        program_record.read_to_call(run)


def test_the_program_of_somebody_else_is_not_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    run.program.write_text(TEXT)
    assert program_record.read_to_call(run).program == PROGRAM
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(UsageError, match="belongs to somebody else"):
        program_record.read_to_call(run)
