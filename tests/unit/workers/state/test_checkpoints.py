from __future__ import annotations

import errno
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError, JobError
from ipulaunch.configs.runs.checkpoints import found_in
from ipulaunch.workers.state import checkpoints

WEIGHTS = [np.array([1.0, 2.0], np.float32), np.array(7, np.float16)]


def save(directory: Path, update: int) -> Path:
    return checkpoints.save(
        directory, {"update": update}, weights=WEIGHTS, names=["kernel", "bias"], optimizer=[np.array(3)]
    )


def test_a_checkpoint_gives_back_what_was_saved(tmp_path: Path) -> None:
    path = save(tmp_path, 12)
    assert path.name == "update-00000012"
    found = checkpoints.load(path)
    assert [array.tolist() for array in found.weights] == [[1.0, 2.0], 7.0]
    assert [array.dtype for array in found.weights] == [np.float32, np.float16]
    assert found.optimizer == [3] and found.more == [] and found.update == 12


def test_more_than_ten_thousand_arrays_keep_their_order(tmp_path: Path) -> None:
    weights = [np.array(number, np.int32) for number in range(10_050)]
    path = checkpoints.save(tmp_path, {"update": 1}, weights=weights, names=[])
    assert [int(array) for array in checkpoints.load(path).weights] == list(range(10_050))


def cut(path: Path) -> None:
    state = path / "state.npz"
    state.write_bytes(state.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray((path / "state.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "state.npz").write_bytes(bytes(data))


def forget(path: Path) -> None:
    (path / "manifest.json").unlink()


def garble(path: Path) -> None:
    (path / "manifest.json").write_text('{"facts": []}')


def promise(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["facts"]["update"] = "12; rm -rf /"
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("damage", [cut, flip, forget, garble, promise])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_is_taken(tmp_path: Path, damage: Any) -> None:
    save(tmp_path, 8)
    path = save(tmp_path, 12)
    damage(path)
    with pytest.raises(DataError, match="update-00000012 is not a complete checkpoint"):
        checkpoints.load(path)
    told: List[str] = []
    newest = checkpoints.newest_whole(tmp_path, told.append)
    assert newest is not None and newest.update == 8
    (reason,) = told
    assert reason.startswith(f"{path} is not a complete checkpoint: ")
    assert found_in(path) == [path]


def test_objects_that_would_run_code_are_refused(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, {"update": 1}, weights=[np.array([object()], object)], names=["x"])
    with pytest.raises(DataError, match="not a complete checkpoint"):
        checkpoints.load(path)


def test_a_failed_write_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **arrays: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 12)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **arrays: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(JobError, match=r"update 12: it needs 0.000 MiB, the disk of .+ has [\d.]+ of [\d.]+ MiB free"):
        save(tmp_path, 12)
    assert not list(tmp_path.iterdir())


def test_a_run_directory_that_was_removed_does_not_come_back(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "run" / "checkpoints", 12)
    assert not list(tmp_path.iterdir())


def test_what_an_ended_process_left_half_written_is_no_checkpoint(tmp_path: Path) -> None:
    whole = save(tmp_path, 8)
    save(tmp_path, 12).rename(tmp_path / ".update-00000012.4711")
    assert found_in(tmp_path) == [whole]


@pytest.mark.parametrize("where", ["run", "run/checkpoints", "run/checkpoints/update-00000012"])
def test_a_run_its_checkpoints_or_one_of_them_can_be_named(tmp_path: Path, where: str) -> None:
    directory = tmp_path / "run" / "checkpoints"
    directory.mkdir(parents=True)
    save(directory, 8)
    save(directory, 12)
    newest = checkpoints.newest_whole(tmp_path / where)
    assert newest is not None and newest.update == 12


def test_a_run_that_was_submitted_has_its_checkpoints_inside(tmp_path: Path) -> None:
    directory = tmp_path / "run" / "checkpoints"
    directory.mkdir(parents=True)
    for place in (tmp_path, tmp_path / "run"):
        (place / "plan.json").touch()
    path = save(directory, 8)
    assert found_in(tmp_path) == [path]


def test_a_checkpoint_tells_its_run_if_it_knows_it(tmp_path: Path) -> None:
    assert checkpoints.run_of(save(tmp_path, 4)) is None
    path = checkpoints.save(tmp_path, {"update": 8, "run": "/runs/a"}, weights=WEIGHTS, names=["kernel", "bias"])
    assert checkpoints.run_of(path) == "/runs/a"
    forget(path)
    assert checkpoints.run_of(path) is None


SINCE_LOG: List[Any] = [
    ({"updates": 2, "sums": {"loss": 3.0}, "logged": {"loss": 9.0}}, 1.5),
    ({"updates": 0, "sums": {}, "logged": {"loss": 9.0}}, 9.0),
    ({"updates": 0, "sums": {}, "logged": {}}, math.inf),
    ({"updates": 1, "sums": {"loss": math.nan}, "logged": {"loss": 9.0}}, math.inf),
    ({"updates": "some", "sums": {}}, math.inf),
    (None, math.inf),
]


@pytest.mark.parametrize(("since_log", "loss"), SINCE_LOG)
def test_the_loss_of_a_checkpoint_is_the_mean_since_the_last_log(tmp_path: Path, since_log: Any, loss: float) -> None:
    facts = {"update": 4, "since_log": since_log}
    assert checkpoints.mean_loss(facts) == loss
    path = checkpoints.save(tmp_path, facts, weights=WEIGHTS, names=["kernel", "bias"])
    assert checkpoints.loss_of(path) == loss
    forget(path)
    assert checkpoints.loss_of(path) == math.inf


def test_nothing_is_found_where_there_is_none(tmp_path: Path) -> None:
    assert checkpoints.newest_whole(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("keep", "best", "left"),
    [(1, 1, [1, 4]), (2, 4, [3, 4]), (2, 0, [0, 3, 4]), (9, 0, [0, 1, 2, 3, 4])],
    ids=["best is older", "best is new", "best is old", "all"],
)
def test_the_newest_and_the_best_are_kept(tmp_path: Path, keep: int, best: int, left: List[int]) -> None:
    saved = [save(tmp_path, update) for update in range(5)]
    kept = checkpoints.prune(saved, keep, saved[best])
    assert [int(path.name[-1]) for path in kept] == left
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in kept]


def test_what_is_to_be_removed_may_be_gone_and_leftovers_may_lie_in_its_way(tmp_path: Path) -> None:
    saved = [save(tmp_path, update) for update in range(3)]
    shutil.rmtree(saved[0])
    for leftover in (f".{saved[1].name}.removed", f".{saved[1].name}.{os.getpid()}"):
        shutil.copytree(saved[1], tmp_path / leftover)
    assert checkpoints.prune(saved, 1, None) == saved[2:]
    assert found_in(tmp_path) == saved[2:]
