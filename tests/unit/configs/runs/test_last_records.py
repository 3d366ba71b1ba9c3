from __future__ import annotations

from pathlib import Path

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.last_records import (
    Done,
    Failed,
    LastRecord,
    Stopped,
    path_of,
    read_failed,
    read_stopped,
    to_text,
)

FAILED = Failed(7, "DataError", "it is damaged\nhere", "copy it again", 5, "Traceback ...")
STOPPED = Stopped(8, "stopped on request after update 4, with a checkpoint")


@pytest.fixture()
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.instance(1).mkdir()
    return run


@pytest.mark.parametrize(
    ("record", "name"),
    [(Done(9, {"updates": 4}), "done.json"), (STOPPED, "stopped.json"), (FAILED, "error.json")],
    ids=["done", "stopped", "failed"],
)
def test_each_has_its_file(record: LastRecord, name: str, run: RunDirectory) -> None:
    assert path_of(record, run, 1) == run.instance(1) / name


def test_they_are_read_as_they_were_written(run: RunDirectory) -> None:
    run.error(1).write_text(to_text(FAILED.to_json()))
    run.stopped(1).write_text(to_text(STOPPED.to_json()))
    assert (read_failed(run, 1), read_stopped(run, 1)) == (FAILED, STOPPED)
    assert to_text(Done(9, {"updates": 4}).to_json()) == '{\n "time_ns": 9,\n "updates": 4\n}\n'


def test_a_headline_has_the_first_line_of_the_message() -> None:
    assert FAILED.first_line == "it is damaged"


@pytest.mark.parametrize("text", ["{", "[1]", "7", "null"])
def test_what_is_not_a_record(text: str, run: RunDirectory) -> None:
    assert read_failed(run, 1) is None
    run.error(1).write_text(text)
    run.stopped(1).write_text(text)
    assert read_failed(run, 1) is None
    assert read_stopped(run, 1) == Stopped(0, "stopped on request")


@pytest.mark.parametrize("text", ["{}", '{"time_ns": "x", "exit_code": 0}', '{"exit_code": "5"}'])
def test_a_record_that_lacks_fields_is_still_a_failure(text: str, run: RunDirectory) -> None:
    run.error(1).write_text(text)
    assert read_failed(run, 1) == Failed(0, "an error", "", "", 7, "")
