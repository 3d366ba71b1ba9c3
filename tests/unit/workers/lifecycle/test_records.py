from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Type

import pytest

from ipulaunch.configs.errors import DataError, IpulaunchError, JobError, NotReadyError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import CheckpointWritten, Loading, Log, Started, Update
from ipulaunch.workers.lifecycle.records import Records


def test_events_are_lines_with_their_times(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    records = Records(run, 3)
    records.event(CheckpointWritten("checkpoints/1", 1))
    records.event(Update(2, 4.0, {"loss": 0.5}))
    records.done({})
    lines = [json.loads(line) for line in run.events(3).read_text().splitlines()]
    times = [line.pop("time_ns") for line in lines]
    assert lines == [
        {"event": "checkpoint", "path": "checkpoints/1", "update": 1},
        {"event": "update", "update": 2, "samples_per_s": 4.0, "loss": 0.5},
    ]
    assert times[0] <= times[1]


def test_every_instance_says_where_it_is_and_one_tells_of_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where: Dict[str, Any] = {"binding": {"cpus": "4-7"}, "tensorflow": "2.6.3", "python": "3.8.18"}
    for instance in (0, 1):
        records = Records(RunDirectory(tmp_path), instance)
        records.event(Started("left", 7, place={"instance": instance, "instances": 2}, **where))
        records.event(Update(1, 2.0, {"loss": 0.5}))
        records.event(Log(2, 2.0, 3, 1, {"loss": 0.25}))
        records.event(CheckpointWritten("checkpoints/3", 3))
        records.done({})
    assert capsys.readouterr().out.splitlines() == [
        "instance 0 of 2 on left: process 7, CPUs 4-7, TensorFlow 2.6.3, Python 3.8.18",
        "epoch 1/2: loss 0.25",
        "checkpoint of update 3: checkpoints/3",
        "instance 1 of 2 on left: process 7, CPUs 4-7, TensorFlow 2.6.3, Python 3.8.18",
    ]


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


def test_an_instance_of_an_earlier_attempt_writes_nothing_into_the_run(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    earlier = Records(run, 0)
    earlier.event(Loading())
    earlier.require_current()
    kept = run.attempts / "1" / "instance-000"
    kept.parent.mkdir(parents=True)
    run.instance(0).rename(kept)
    assert not earlier.are_current  # before the next attempt has begun
    later = Records(run, 0)
    with pytest.raises(JobError, match="another attempt"):
        earlier.require_current()
    earlier.event(Loading())
    earlier.error(ValueError("the others are gone"))
    assert later.are_current and not run.error(0).exists()
    later.done({})
    assert run.events(0).read_text() == "" and len((kept / "events.jsonl").read_text().splitlines()) == 2
