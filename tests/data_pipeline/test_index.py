from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline import index as module
from ipulaunch.data_pipeline.index import open_index
from ipulaunch.data_pipeline.record_reader import RecordReader
from ipulaunch.data_pipeline.tfrecord import scan

Write = Callable[..., Path]


def contents(paths: List[Path]) -> List[bytes]:
    index = open_index(paths, threads=2)
    reader = RecordReader(index)
    return [reader.read(record) for record in range(index.records)]


@pytest.mark.parametrize(
    "counts",
    [[1], [3, 1, 2], [0, 4, 0, 0, 1, 0], [200], [1] * 40],
    ids=["one", "uneven", "empty files", "large", "many"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_every_record_is_found_once_and_in_order(counts: List[int], packed: bool, write: Write) -> None:
    records = [[b"%d-%d" % (file, number) * 50 for number in range(count)] for file, count in enumerate(counts)]
    paths = [write(f"f{file:03}", part, packed=packed) for file, part in enumerate(records)]
    assert contents(paths) == [record for part in records for record in part]


def test_a_record_knows_its_place(write: Write) -> None:
    paths = [write("a", [b"1", b"22"]), write("b", []), write("c", [b"333"])]
    index = open_index(paths, threads=1)
    assert [str(index.place(record)) for record in range(3)] == [
        f"{paths[0]}, record 0 at byte 12",
        f"{paths[0]}, record 1 at byte 29",
        f"{paths[2]}, record 0 at byte 12",
    ]


def test_an_index_takes_16_bytes_a_record(write: Write) -> None:
    index = open_index([write("a", [b"x"] * 1000)], threads=1)
    assert index.offsets.nbytes + index.lengths.nbytes == 16 * index.records


@pytest.fixture
def scanned(monkeypatch: Any) -> List[str]:
    names: List[str] = []

    def counting(path: Path) -> Any:
        names.append(path.name)
        return scan(path)

    monkeypatch.setattr(module, "scan", counting)
    return names


def test_a_second_look_reads_no_file_again(write: Write, scanned: List[str]) -> None:
    paths = [write(name, [b"x"]) for name in "abc"]
    first = open_index(paths, threads=1)
    assert sorted(scanned) == ["a", "b", "c"]
    second = open_index(paths, threads=1)
    assert len(scanned) == 3
    assert np.array_equal(first.offsets, second.offsets) and first.paths == second.paths


def test_only_changed_files_are_read_again(write: Write, scanned: List[str]) -> None:
    paths = [write(name, [b"x"]) for name in "abc"]
    open_index(paths, threads=1)
    scanned.clear()
    write("b", [b"x", b"yy"])
    assert open_index(paths, threads=1).records == 4
    assert scanned == ["b"]


def test_an_interrupted_build_goes_on_where_it_was(write: Write, scanned: List[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_SAVE_EVERY", 2)
    paths = [write(name, [b"x"]) for name in "abcde"]

    def stop(done: int, files: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_index(paths, threads=1, progress=stop)
    scanned.clear()
    assert open_index(paths, threads=1).records == 5
    assert scanned == ["c", "d", "e"]


@pytest.mark.parametrize("damage", [b"", b"not a zip", b"PK\x03\x04" + b"\0" * 50], ids=["empty", "text", "half a zip"])
def test_a_damaged_index_is_made_anew(damage: bytes, write: Write) -> None:
    paths = [write("a", [b"x", b"y"])]
    (paths[0].parent / ".ipulaunch-index.npz").write_bytes(damage)
    assert contents(paths) == [b"x", b"y"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_set_has_its_index_in_the_cache(write: Write, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = [write("set/a", [b"x"])]
    paths[0].parent.chmod(0o500)
    open_index(paths, threads=1)
    assert len(list((tmp_path / "cache" / "ipulaunch").iterdir())) == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "the last 1 bytes are missing"),
        (lambda data: data[:20], "the last 13 bytes are missing"),
        (lambda data: data + b"abc", "the file ends inside a record's header"),
        (lambda data: b"\xff" + data[1:], "the length has the wrong checksum"),
    ],
    ids=["one byte short", "cut in the data", "cut in a header", "length changed"],
)
def test_a_damaged_file_is_refused_with_the_place(damage: Any, said: str, write: Write) -> None:
    path = write("a", [b"0123456789abcdef\0"])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=said) as caught:
        open_index([path], threads=1)
    assert caught.value.message.startswith(f"{path}, record ")


def test_a_cut_packed_file_is_refused(write: Write) -> None:
    path = write("a", [b"0123456789"], packed=True)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="cannot be unpacked"):
        open_index([path], threads=1)


def test_two_splits_in_one_directory_share_the_index(write: Write, scanned: List[str]) -> None:
    train, valid = [write("train-0", [b"x"])], [write("validation-0", [b"y"])]
    for paths in (train, valid, train, valid):
        open_index(paths, threads=1)
    assert scanned == ["train-0", "validation-0"]
