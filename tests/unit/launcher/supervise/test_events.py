from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.supervise.events import Follower, Progress

TRAINING = {"event": "training", "time_ns": 1, "epochs": 2, "updates_per_epoch": 8, "left_out": 3}


def _update(number: int, **more: Any) -> Dict[str, Any]:
    return {"event": "update", "time_ns": number, "update": number, "samples_per_s": 10.0, **more}


def _add(path: Path, *records: Dict[str, Any], end: bytes = b"") -> None:
    with path.open("ab") as file:
        file.write(b"".join(json.dumps(record).encode() + b"\n" for record in records) + end)


@pytest.fixture()
def follower(run_directory: RunDirectory) -> Iterator[Follower]:
    follower = Follower(run_directory, 2)
    yield follower
    follower.close()


def _numbers(records: List[Dict[str, Any]]) -> List[Any]:
    return [(record["instance"], record["update"]) for record in records]


def test_nothing_is_there_yet(follower: Follower) -> None:
    assert follower.look() == []


def test_directory_of_an_instance_is_not_there_yet(tmp_path: Path) -> None:
    follower = Follower(RunDirectory(tmp_path / "later"), 2)
    assert follower.look() == []


def test_each_record_is_seen_once(follower: Follower, run_directory: RunDirectory) -> None:
    _add(run_directory.events(0), _update(1))
    assert _numbers(follower.look()) == [(0, 1)]
    assert follower.look() == []
    _add(run_directory.events(0), _update(2), _update(3))
    assert _numbers(follower.look()) == [(0, 2), (0, 3)]


def test_instances_are_told_in_the_order_things_happened(follower: Follower, run_directory: RunDirectory) -> None:
    _add(run_directory.events(1), _update(1), _update(4))
    _add(run_directory.events(0), _update(2), _update(3))
    assert _numbers(follower.look()) == [(1, 1), (0, 2), (0, 3), (1, 4)]


def test_file_that_appears_late_is_read_from_its_start(follower: Follower, run_directory: RunDirectory) -> None:
    _add(run_directory.events(0), _update(1))
    follower.look()
    _add(run_directory.events(1), _update(1))
    assert _numbers(follower.look()) == [(1, 1)]


def test_partial_line_waits_for_its_end(follower: Follower, run_directory: RunDirectory) -> None:
    line = json.dumps(_update(1, note="grüße")).encode() + b"\n"
    for position in range(len(line) - 1):
        with run_directory.events(0).open("ab") as file:
            file.write(line[position : position + 1])
        assert follower.look() == []
    with run_directory.events(0).open("ab") as file:
        file.write(line[-1:])
    assert _numbers(follower.look()) == [(0, 1)]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"{", id="open"),
        pytest.param(b"", id="empty"),
        pytest.param(b"[1, 2]", id="list"),
        pytest.param(b"7", id="number"),
        pytest.param(b"null", id="null"),
        pytest.param(b"\xff\xfe", id="not-text"),
        pytest.param(b"{}", id="no-event"),
        pytest.param(b'{"event": "training"}', id="no-fields"),
        pytest.param(b'{"event": "update", "time_ns": "x", "update": 1, "samples_per_s": 1.0}', id="time-as-text"),
        pytest.param(b'{"event": ["update"], "time_ns": 1}', id="event-that-is-a-list"),
    ],
)
def test_broken_line_hides_no_other(broken: bytes, follower: Follower, run_directory: RunDirectory) -> None:
    _add(run_directory.events(0), _update(1), end=broken + b"\n")
    _add(run_directory.events(0), _update(2))
    seen = [record for record in follower.look() if record.get("event") == "update" and record.get("time_ns") in (1, 2)]
    assert {(0, 1), (0, 2)} <= set(_numbers(seen))
    assert (follower.progress.update, follower.progress.samples_per_s) == (2, 10.0)


def test_long_file_is_read_in_several_looks(follower: Follower, run_directory: RunDirectory) -> None:
    _add(run_directory.events(0), *(_update(number, text="x" * 1000) for number in range(1, 3001)))
    _add(run_directory.events(1), _update(1))
    looks = []
    for _ in range(10):
        looks.append(follower.look())
        if not looks[-1]:
            break
    assert len(looks) > 3
    assert [record["update"] for look in looks for record in look if record["instance"] == 0] == list(range(1, 3001))
    assert 1 in [record["instance"] for record in looks[0]]


@pytest.mark.parametrize(
    "record",
    [
        {"event": "validation", "epoch": 1},
        {"event": "validation", "update": 1},
        {"event": "warning"},
        {"event": "resumed", "path": "p"},
        {"event": "log", "update": 1},
        {"event": "checkpoint"},
        {"event": "checkpoint", "path": "p"},
        {"event": "training", "epochs": 1},
        {},
    ],
    ids=lambda record: " ".join(map(str, record.values())) or "nothing",
)
def test_incomplete_record_is_not_taken(record: Dict[str, Any]) -> None:
    progress = Progress(1)
    assert not progress.take(0, {"time_ns": 1, **record})
    assert progress == Progress(1)


def test_progress_of_a_training() -> None:
    progress = Progress(2)
    assert (progress.update, progress.samples_per_s, progress.total_updates) == (0, 0, 0)
    progress.take(0, {"event": "started", "time_ns": 1, "host": "a"})
    progress.take(0, TRAINING)
    progress.take(0, _update(3, loss=0.5))
    progress.take(1, _update(4, loss=0.4))
    progress.take(
        0, {"event": "log", "time_ns": 9, "epoch": 1, "epochs": 2, "update": 8, "samples_per_s": 12.0, "val_loss": 0.3}
    )
    assert progress.take(0, {"event": "checkpoint", "time_ns": 10, "path": "checkpoints/8", "update": 8})
    progress.take(0, {"event": "something new", "time_ns": 11})
    assert progress.total_updates == 16
    assert (progress.update, progress.samples_per_s) == (8, 22.0)
    assert progress.metrics == {"loss": 0.4, "val_loss": 0.3}
    assert progress.started[0]["host"] == "a"


def test_a_training_that_is_taken_up_again_is_where_it_was_left() -> None:
    progress = Progress(1)
    progress.take(0, {"event": "resumed", "time_ns": 1, "path": "checkpoints/6", "update": 6})
    assert (progress.update, progress.position) == (0, 6)
    progress.take(0, _update(7, loss=0.5))
    assert (progress.update, progress.position) == (7, 7)


def test_what_is_prepared_before_a_training_is_told_from_the_first_instance() -> None:
    progress = Progress(2)
    assert progress.take(0, {"event": "staging", "time_ns": 1, "done": 3 << 20, "total": 10 << 20})
    assert progress.preparing == "staging: 3 of 10 MiB"
    assert progress.take(0, {"event": "validating", "time_ns": 1, "done": 3, "total": 10})
    assert progress.preparing == "validating: 3 of 10 micro-batches"
    assert progress.take(0, {"event": "indexing", "time_ns": 2, "done": 40, "total": 1024})
    assert progress.take(1, {"event": "indexing", "time_ns": 3, "done": 7, "total": 1024})
    assert progress.preparing == "indexing: 40 of 1024 files"
    assert not progress.take(0, {"event": "indexing", "time_ns": 4, "done": "all", "total": 1024})
    assert not progress.take(0, {"event": "staging", "time_ns": 4, "done": 1})
