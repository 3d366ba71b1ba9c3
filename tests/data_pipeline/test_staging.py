from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.staging import stage


@pytest.fixture
def files(tmp_path: Path) -> List[Path]:
    made = []
    for number in range(5):
        path = tmp_path / "set" / "train" / f"{number}.tfrecord"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 1000 * number)
        made.append(path)
    return made


def staged(files: List[Path], tmp_path: Path, index: int = 0, instances: int = 1) -> Tuple[List[Path], List[Any]]:
    seen: List[Any] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    target = tmp_path / "disk"
    return stage(files, tmp_path / "set", target, index=index, instances=instances, progress=progress), seen


def test_the_instances_of_a_host_copy_everything_once_between_them(files: List[Path], tmp_path: Path) -> None:
    parts = [staged(files, tmp_path, index, 3) for index in range(3)]
    assert len({tuple(places) for places, _ in parts}) == 1
    for path, place in zip(files, parts[0][0]):
        assert place == tmp_path / "disk" / "train" / path.name
        assert place.read_bytes() == path.read_bytes()
    assert sorted(path.name for path in (tmp_path / "disk" / "train").iterdir()) == [path.name for path in files]


def test_progress_counts_bytes(files: List[Path], tmp_path: Path) -> None:
    assert staged(files, tmp_path)[1] == [(0, 10000), (1000, 10000), (3000, 10000), (6000, 10000), (10000, 10000)]


def test_what_was_copied_before_is_not_copied_again(files: List[Path], tmp_path: Path) -> None:
    staged(files, tmp_path)
    files[2].write_bytes(b"new")
    _, seen = staged(files, tmp_path)
    assert seen == [(3, 3)]
    assert (tmp_path / "disk" / "train" / "2.tfrecord").read_bytes() == b"new"


def test_a_disk_without_room_is_refused_before_anything_is_copied(
    files: List[Path], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=100000, free=11999))
    with pytest.raises(DataError, match="staging needs 0 MiB in"):
        staged(files, tmp_path)
    assert not (tmp_path / "disk" / "train").exists()


def test_a_failed_copy_leaves_nothing_half_written(files: List[Path], tmp_path: Path) -> None:
    files[3].unlink()
    files[3].mkdir()
    with pytest.raises(DataError, match="cannot be staged"):
        staged(files, tmp_path)
    assert not [path for path in (tmp_path / "disk" / "train").iterdir() if path.name.startswith(".")]
