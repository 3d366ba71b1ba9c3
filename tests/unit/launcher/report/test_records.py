from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.report.records import InstanceRecords, read_records

SECOND = 10**9


@pytest.fixture()
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.instance(0).mkdir()
    return run


def line(second: float, **record: Any) -> str:
    kind = record.pop("event")
    return json.dumps({"event": kind, "time_ns": 1_790_000_000 * SECOND + int(second * SECOND), **record}) + "\n"


def update(number: int) -> str:
    return line(number, event="update", update=number, samples_per_s=10.0 + number, loss=0.5)


def read(run: RunDirectory, *lines: str, most_bytes: int = 1 << 20) -> InstanceRecords:
    run.events(0).write_text("".join(lines))
    return read_records(run, 0, most_bytes)


def test_the_last_update_counts_and_times_are_added(run: RunDirectory) -> None:
    times = [line(2 + n, event="times", update=n, seconds={"data": 1.0, "device": 2.0}) for n in range(3)]
    records = read(run, update(1), *times, update(2), "not a record\n", line(9, event="of another version", x=1))
    assert (records.update, records.samples_per_s) == (2, 12.0)
    assert records.seconds == {"data": 3.0, "device": 6.0}
    assert (records.last_s - records.first_s, records.is_sampled) == (8.0, False)


@pytest.mark.parametrize(
    "record",
    [
        {"event": "times"},
        {"event": "times", "update": 1},
        {"event": "times", "update": 1, "seconds": [1]},
        {"event": "times", "update": 1, "seconds": {"data": "long"}},
        {"event": "times", "update": 1, "seconds": {"data": -1.0, "device": 1.0}},
    ],
)
def test_what_says_nothing_of_times_adds_nothing(record: Dict[str, Any], run: RunDirectory) -> None:
    assert read(run, line(1, **record)).seconds == {}


def test_the_longest_silence_is_known(run: RunDirectory) -> None:
    records = read(run, update(1), update(2), line(99, event="checkpoint", path="c", update=2), update(100))
    assert (records.silence_s, records.silent_from_s) == (97.0, 1_790_000_002.0)
    assert [(moment.kind, moment.update) for moment in records.moments] == [("checkpoint", 2)]


def test_of_a_large_file_pieces_are_read_the_first_and_the_last_line_among_them(run: RunDirectory) -> None:
    started = line(0, event="started", host="a", binding={"cpus": "0-3"})
    records = read(run, started, *map(update, range(1, 20_001)), most_bytes=1 << 16)
    assert records.is_sampled and run.events(0).stat().st_size > 1 << 20
    assert records.started is not None and records.started.cpus == "0-3"
    assert records.update == 20_000
    assert records.silence_s == 1.0  # what lies between two pieces is no silence


def test_an_instance_without_records(run: RunDirectory) -> None:
    assert read_records(run, 7, 1 << 20) == InstanceRecords(7)
