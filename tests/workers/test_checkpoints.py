from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.workers import checkpoints

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
    with pytest.raises(DataError, match="update-00000012 is no whole checkpoint"):
        checkpoints.load(path)
    newest = checkpoints.newest_whole(tmp_path)
    assert newest is not None and newest.update == 8


def test_objects_that_would_run_code_are_refused(tmp_path: Path) -> None:
    path = checkpoints.save(tmp_path, {"update": 1}, weights=[np.array([object()], object)], names=["x"])
    with pytest.raises(DataError, match="no whole checkpoint"):
        checkpoints.load(path)


def test_a_failed_write_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **arrays: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path, 12)
    assert not list(tmp_path.iterdir())


def test_what_an_ended_process_left_half_written_is_no_checkpoint(tmp_path: Path) -> None:
    whole = save(tmp_path, 8)
    save(tmp_path, 12).rename(tmp_path / ".update-00000012.4711")
    assert checkpoints.found_in(tmp_path) == [whole]


@pytest.mark.parametrize("where", ["run", "run/checkpoints", "run/checkpoints/update-00000012"])
def test_a_run_its_checkpoints_or_one_of_them_can_be_named(tmp_path: Path, where: str) -> None:
    directory = tmp_path / "run" / "checkpoints"
    save(directory, 8)
    save(directory, 12)
    newest = checkpoints.newest_whole(tmp_path / where)
    assert newest is not None and newest.update == 12


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
