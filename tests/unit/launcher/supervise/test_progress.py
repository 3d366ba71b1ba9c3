from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import (
    CheckpointWritten,
    Indexing,
    Log,
    Resumed,
    Staging,
    Started,
    Times,
    Training,
    UnknownEvent,
    Update,
    Validating,
    WarningEvent,
)
from ipulaunch.launcher.supervise.progress import Follower, Recorded, RunProgress, last_times, progress_of


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


def _numbers(recorded: List[Recorded]) -> List[Tuple[int, int]]:
    return [(instance, event.update) for instance, _, event in recorded if isinstance(event, Update)]


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
    assert [(time_ns, event) for _, time_ns, event in follower.look()] == [
        (1, Update(1, 10.0, {})),
        (2, Update(2, 10.0, {})),
    ]
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
    found = [number for look in looks for instance, number in _numbers(look) if instance == 0]
    assert found == list(range(1, 3001))
    assert 1 in [recorded.instance for recorded in looks[0]]


def test_an_event_of_another_version_is_a_sign_of_progress(follower: Follower, run_directory: RunDirectory) -> None:
    _add(run_directory.events(0), {"event": "something new", "time_ns": 11})
    assert follower.look() == [Recorded(0, 11, UnknownEvent())]
    assert follower.progress == RunProgress(2)


def test_progress_of_a_training() -> None:
    progress = RunProgress(2)
    assert (progress.update, progress.samples_per_s, progress.total_updates) == (0, 0, 0)
    progress.take(0, Started("a"))
    progress.take(0, Training(samples=35, epochs=2, updates_per_epoch=8, first_update=0, left_out=3))
    progress.take(0, Update(3, 10.0, {"loss": 0.5}))
    progress.take(1, Update(4, 10.0, {"loss": 0.4}))
    progress.take(0, Log(2, 12.0, 8, 1, {"val_loss": 0.3}))
    progress.take(0, CheckpointWritten("checkpoints/8", 8))
    progress.take(0, WarningEvent("rounded"))
    assert progress.total_updates == 16
    assert (progress.update, progress.samples_per_s, progress.kept) == (8, 22.0, 8)
    assert progress.metrics == {"loss": 0.4, "val_loss": 0.3}
    assert progress.started[0].host == "a"


def test_the_instance_that_waits_longest_for_data_counts() -> None:
    progress = RunProgress(2)
    assert progress.waiting == 0
    progress.take(0, Times(4, {"data": 9.0, "device": 1.0}))
    progress.take(0, Times(8, {"data": 1.0, "device": 9.0}))
    progress.take(1, Times(8, {"data": 2.0, "reduction": 8.0}))
    assert progress.waiting == 0.2


def test_last_times_are_found_at_the_ends_of_events(run_directory: RunDirectory) -> None:
    def times(data: float) -> Dict[str, Any]:
        return {"time_ns": 1, **Times(8, {"data": data}).to_json()}

    padding = [_update(number, text="x" * 1000) for number in range(2000)]
    _add(run_directory.events(0), times(1.0), *padding, times(2.0), *padding[:20], end=b'{"event": "times", "upd')
    _add(run_directory.events(1), times(3.0), {"event": "times", "time_ns": 1, "update": 9, "seconds": {"data": "x"}})
    assert last_times(run_directory, 3) == [{"data": 2.0}, {"data": 3.0}]


def test_a_training_that_is_taken_up_again_is_where_it_was_left() -> None:
    progress = RunProgress(1)
    progress.take(0, Resumed("checkpoints/6", 6))
    assert (progress.update, progress.position) == (0, 6)
    progress.take(0, Update(7, 10.0, {"loss": 0.5}))
    assert (progress.update, progress.position) == (7, 7)


def test_what_is_prepared_before_a_training_is_told_from_the_first_instance() -> None:
    progress = RunProgress(2)
    progress.take(0, Staging(3 << 20, 10 << 20))
    assert progress.preparing == "staging: 3 of 10 MiB"
    progress.take(0, Staging(3 << 20, 10 << 20, 70.0))
    assert progress.preparing == "staging: 3 of 10 MiB, about 70 s left"
    progress.take(0, Validating(3, 10))
    assert progress.preparing == "validating: 3 of 10 micro-batches"
    progress.take(0, Indexing(40, 1024))
    progress.take(1, Indexing(7, 1024))
    assert progress.preparing == "indexing: 40 of 1024 files"


def test_all_events_of_the_first_instance_are_read(run_directory: RunDirectory) -> None:
    _add(run_directory.events(0), *(_update(number, text="x" * 1000) for number in range(1, 3001)))
    _add(run_directory.events(1), _update(9000))
    assert progress_of(run_directory).update == 3000
