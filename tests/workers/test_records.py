from __future__ import annotations

import json
from pathlib import Path
from typing import Type

import pytest

from ipulaunch.configs.errors import DataError, IpulaunchError, NotReadyError
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.workers.records import Records


def test_events_are_lines_with_their_times(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    records = Records(run, 3)
    records.event("started", pid=1)
    records.event("update", update=2)
    records.done({})
    lines = [json.loads(line) for line in run.events(3).read_text().splitlines()]
    assert [(line["event"], line.get("pid"), line.get("update")) for line in lines] == [
        ("started", 1, None),
        ("update", None, 2),
    ]
    assert lines[0]["time_ns"] <= lines[1]["time_ns"]


@pytest.mark.parametrize(("kind", "code"), [(DataError, 5), (NotReadyError, 4)])
def test_an_error_of_ours_keeps_its_exit_code_and_hint(kind: Type[IpulaunchError], code: int, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    Records(run, 0).error(kind("what", hint="next"))
    record = json.loads(run.error(0).read_text())
    found = [record[name] for name in ("type", "message", "hint", "exit_code")]
    assert found == [kind.__name__, "what", "next", code]


def test_any_other_error_is_a_failed_job(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        Records(run, 0).error(error)
    record = json.loads(run.error(0).read_text())
    assert record["exit_code"] == 7
    assert "test_any_other_error" in record["traceback"]
