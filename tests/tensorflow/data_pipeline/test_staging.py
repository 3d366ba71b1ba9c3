from __future__ import annotations

import fcntl
import gzip
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.data_pipeline import staging
from ipulaunch.data_pipeline.staging import stage, whole_files


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
    copies = whole_files(files, tmp_path / "set", target, tolerant=False)
    stage(copies, target, index=index, instances=instances, progress=progress)
    return [copy.place for copy in copies], seen


def test_the_instances_of_a_host_copy_everything_once_between_them(files: List[Path], tmp_path: Path) -> None:
    parts = [staged(files, tmp_path, index, 3) for index in range(3)]
    assert len({tuple(places) for places, _ in parts}) == 1
    for path, place in zip(files, parts[0][0]):
        assert place == tmp_path / "disk" / "train" / path.name
        assert place.read_bytes() == path.read_bytes()
    assert sorted(path.name for path in (tmp_path / "disk" / "train").iterdir()) == [path.name for path in files]


def test_progress_counts_bytes(files: List[Path], tmp_path: Path) -> None:
    assert staged(files, tmp_path)[1] == [(done, 10000) for done in (0, 0, 1000, 3000, 6000, 10000)]


def test_what_was_copied_before_is_not_copied_again(files: List[Path], tmp_path: Path) -> None:
    staged(files, tmp_path)
    files[2].write_bytes(b"new")
    _, seen = staged(files, tmp_path)
    assert seen == [(0, 3), (3, 3)]
    assert (tmp_path / "disk" / "train" / "2.tfrecord").read_bytes() == b"new"


def test_a_disk_without_room_is_refused_before_anything_is_copied(
    files: List[Path], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=100000, free=11999))
    with pytest.raises(DataError, match="staging needs 0 MiB in"):
        staged(files, tmp_path)
    assert not (tmp_path / "disk" / "train").exists()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: Any) -> Any:
    """Gives the disk a size, of which 2 % are spared."""

    def limit(size: int) -> None:
        def usage(path: Path) -> Any:
            used = sum(each.stat().st_size for each in (tmp_path / "disk").rglob("*") if each.is_file())
            return SimpleNamespace(total=size, free=size - used)

        monkeypatch.setattr(shutil, "disk_usage", usage)

    return limit


def leave(tmp_path: Path, name: str, size: int) -> Path:
    """What a copy has written so far."""
    path = tmp_path / "disk" / "train" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


@pytest.mark.parametrize("index", [0, 1])
def test_what_a_dead_copy_left_takes_no_room_from_the_next(
    index: int, files: List[Path], tmp_path: Path, room: Any
) -> None:
    dead = [leave(tmp_path, f".{number}.tfrecord.4711", 900 * number) for number in (3, 4)]
    room(10300)
    staged(files, tmp_path, index, 2)
    assert [path.exists() for path in dead] == [index == 0, index == 1]  # each instance removes those of its own part
    staged(files, tmp_path, 1 - index, 2)
    assert not any(path.exists() for path in dead)


def test_what_another_instance_has_copied_so_far_is_not_needed_again(
    files: List[Path], tmp_path: Path, room: Any
) -> None:
    living = leave(tmp_path, ".3.tfrecord.4711", 2500)
    room(10300)
    with living.open("rb") as copying:
        fcntl.flock(copying, fcntl.LOCK_EX)
        staged(files, tmp_path, 0, 2)
        assert living.exists()
        room(9900)
        (tmp_path / "disk" / "train" / "4.tfrecord").unlink()
        with pytest.raises(DataError, match="staging needs 0 MiB in"):
            staged(files, tmp_path, 0, 2)


def complete(copy: Path, path: Path) -> None:
    shutil.copystat(path, copy)
    copy.rename(copy.with_name(path.name))


@pytest.mark.parametrize("is_before", [True, False], ids=["before it is seen", "after"])
@pytest.mark.parametrize(
    ("size", "change"),
    [(3000, complete), (2900, lambda copy, path: copy.unlink())],
    ids=["a copy ends", "a leftover is removed"],
)
def test_what_others_do_during_the_check_takes_no_room(
    size: int, change: Any, is_before: bool, files: List[Path], tmp_path: Path, room: Any, monkeypatch: Any
) -> None:
    copy = leave(tmp_path, ".3.tfrecord.4711", size)
    room(10300)
    begun = staging._begun

    def listed(places: Any) -> Any:
        found = [] if is_before else list(begun(places))
        if tmp_path / "disk" / "train" / "3.tfrecord" in places and copy.exists():
            change(copy, files[3])
        return list(begun(places)) if is_before else found

    monkeypatch.setattr(staging, "_begun", listed)
    staged(files, tmp_path, 0, 2)


def test_a_failed_copy_leaves_nothing_half_written(files: List[Path], tmp_path: Path) -> None:
    files[3].unlink()
    files[3].mkdir()
    with pytest.raises(DataError, match="cannot be staged"):
        staged(files, tmp_path)
    assert not [path for path in (tmp_path / "disk" / "train").iterdir() if path.name.startswith(".")]


def test_what_a_dead_copy_left_is_removed_and_a_living_one_left_alone(files: List[Path], tmp_path: Path) -> None:
    disk = tmp_path / "disk" / "train"
    disk.mkdir(parents=True)
    dead, living = disk / ".0.tfrecord.4711", disk / ".1.tfrecord.4712"
    others = [disk / name for name in (".other.tfrecord.4711", ".0.tfrecord.bak", ".ipulaunch-index.npz")]
    for path in (dead, living, *others):
        path.write_bytes(b"half")
    with living.open("rb") as copying:
        fcntl.flock(copying, fcntl.LOCK_EX)
        staged(files, tmp_path)
    assert [path.exists() for path in (dead, living, *others)] == [False, True, True, True, True]


def test_a_copy_under_way_is_held(files: List[Path], tmp_path: Path, monkeypatch: Any) -> None:
    """So that nobody who stages the same files to the same disk takes it for one that a dead process left."""
    checksum, held = staging._checksum, []

    def checking(path: Path) -> int:
        with path.open("rb") as copy, pytest.raises(BlockingIOError):
            fcntl.flock(copy, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(path.name)
        return checksum(path)

    monkeypatch.setattr(staging, "_checksum", checking)
    staged(files, tmp_path)
    assert len(held) == 5


def test_a_file_that_vanishes_before_it_is_copied_is_a_data_error(files: List[Path], tmp_path: Path) -> None:
    files[3].unlink()
    with pytest.raises(DataError, match=r"3\.tfrecord cannot be staged"):
        staged(files, tmp_path)


def test_a_place_that_cannot_be_made_is_told(files: List[Path], tmp_path: Path) -> None:
    (tmp_path / "disk").touch()
    with pytest.raises(NotReadyError, match=r"nothing can be staged to .*disk: ") as caught:
        staged(files, tmp_path)
    assert "--stage-dir" in caught.value.hint


def test_a_directory_that_cannot_be_made_is_a_data_error(files: List[Path], tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "train").touch()
    with pytest.raises(DataError, match=r"0\.tfrecord cannot be staged to .*disk/train: File exists"):
        staged(files, tmp_path)


def test_packed_files_arrive_unpacked(files: List[Path], tmp_path: Path, room: Any) -> None:
    files[3].write_bytes(gzip.compress(b"x" * 50000))
    files[4].write_bytes(gzip.compress(b"y" * 3000) + gzip.compress(b"z"))  # the end names the size of the last part
    room(20000)
    with pytest.raises(DataError, match=r"staging needs 0 MiB in .* which has 0 MiB to spare"):
        staged(files, tmp_path)
    room(200000)
    staged(files, tmp_path)
    disk = tmp_path / "disk" / "train"
    assert (disk / files[3].name).read_bytes() == b"x" * 50000
    assert (disk / files[4].name).read_bytes() == b"y" * 3000 + b"z"
    assert staged(files, tmp_path)[1] == []


@pytest.mark.parametrize("tolerant", [False, True])
def test_a_packed_file_that_is_cut_off_is_an_error_or_stays_as_it_is(
    tolerant: bool, files: List[Path], tmp_path: Path
) -> None:
    packed = gzip.compress(bytes(range(256)) * 100)[:-40]
    files[3].write_bytes(packed)
    copies = whole_files(files, tmp_path / "set", tmp_path / "disk", tolerant=tolerant)
    options: Any = {"index": 0, "instances": 1, "progress": lambda done, total: None}
    if tolerant:
        stage(copies, tmp_path / "disk", **options)
        assert (tmp_path / "disk" / "train" / files[3].name).read_bytes() == packed
    else:
        with pytest.raises(DataError, match=r"3\.tfrecord is packed with gzip and cannot be unpacked"):
            stage(copies, tmp_path / "disk", **options)
