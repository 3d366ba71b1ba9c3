from __future__ import annotations

import gc
import gzip
import itertools
import os
import tracemalloc
from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records import index as module
from ipulaunch.data_pipeline.records.index import open_index
from ipulaunch.data_pipeline.records.kept_index import kept_at
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.records.tfrecord import scan
from ipulaunch.data_pipeline.tools.new_set import write_records

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
        f"{paths[0]}, record 0 at byte 0",
        f"{paths[0]}, record 1 at byte 17",
        f"{paths[2]}, record 0 at byte 0",
    ]


def test_an_index_takes_16_bytes_a_record(write: Write) -> None:
    index = open_index([write("a", [b"x"] * 1000)], threads=1)
    assert index.offsets.nbytes + index.lengths.nbytes == 16 * index.records


@pytest.mark.parametrize(("files", "records", "most"), [(2, 5000, 17), (3000, 1, 80)], ids=["records", "files"])
def test_memory_grows_by_little_more_than_that(files: int, records: int, most: int, tmp_path: Path) -> None:
    """Of a file, its name and 17 bytes more are held; 80 with a name of 20 characters is plenty."""
    for number in range(files):
        write_records(tmp_path / f"part-{number:05}.tfrecord", [b"x"] * records)
    for _ in range(2):  # it is built, and then read: what both import is not counted
        open_index(sorted(tmp_path.glob("*.tfrecord")), threads=1)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        index = open_index(sorted(tmp_path.glob("*.tfrecord")), threads=1)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert index.records == files * records
    assert grown < most * files * records + (1 << 15)


def test_paths_are_made_from_names_when_they_are_asked_for(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b\udcff", "ccc")]
    for path in paths:
        write_records(path, [b"x"])
    index = open_index(paths, threads=1)
    assert list(index.paths) == paths and index.paths[-1] == paths[-1]
    with pytest.raises(IndexError):
        index.paths[3]


@pytest.fixture
def scanned(monkeypatch: Any) -> List[str]:
    names: List[str] = []

    def counting(path: Path, collector: Any) -> Any:
        names.append(path.name)
        return scan(path, collector)

    monkeypatch.setattr(module, "scan", counting)
    return names


def test_a_second_look_reads_no_file_again(write: Write, scanned: List[str]) -> None:
    paths = [write(name, [b"x"]) for name in "abc"]
    first = open_index(paths, threads=1)
    assert sorted(scanned) == ["a", "b", "c"]
    second = open_index(paths, threads=1)
    assert len(scanned) == 3
    assert np.array_equal(first.offsets, second.offsets) and list(first.paths) == list(second.paths)


def test_only_changed_files_are_read_again(write: Write, scanned: List[str]) -> None:
    paths = [write(name, [b"x"]) for name in "abc"]
    open_index(paths, threads=1)
    scanned.clear()
    write("b", [b"x", b"yy"])
    assert open_index(paths, threads=1).records == 4
    assert scanned == ["b"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, DataError("no room")], ids=["interrupted", "failed"])
def test_a_build_that_ends_early_goes_on_where_it_was(failure: Any, write: Write, scanned: List[str]) -> None:
    paths = [write(name, [b"x"]) for name in "abcdefghij"]

    def stop(done: int, files: int) -> None:
        if done == 4:
            raise failure

    with pytest.raises((KeyboardInterrupt, DataError)):
        open_index(paths, threads=1, progress=stop)
    scanned.clear()
    assert open_index(paths, threads=1).records == 10
    assert scanned == list("efghij")


def test_a_build_goes_on_after_a_damaged_file_is_mended(write: Write, scanned: List[str]) -> None:
    paths = [write(name, [b"x"]) for name in "abc"]
    paths[2].write_bytes(b"damaged")
    with pytest.raises(DataError, match="c, record 0 at byte 0"):
        open_index(paths, threads=1)
    write("c", [b"x"])
    scanned.clear()
    assert open_index(paths, threads=1).records == 3
    assert scanned == ["c"]


def test_a_long_build_is_saved_every_few_seconds(write: Write, monkeypatch: Any) -> None:
    """A killed process runs no `finally`: what it had saved is all that is left."""
    paths = [write(name, [b"x"]) for name in "abcdef"]
    place = paths[0].parent / ".ipulaunch-index.npz"
    seconds, saved = itertools.count(0, 4), []
    open_index(
        paths, threads=1, progress=lambda done, total: saved.append(place.exists()), clock=lambda: float(next(seconds))
    )
    assert saved == [False, False, False, True, True, True]


@pytest.mark.parametrize("damage", [b"", b"not a zip", b"PK\x03\x04" + b"\0" * 50], ids=["empty", "text", "half a zip"])
def test_a_damaged_index_is_made_anew(damage: bytes, write: Write) -> None:
    paths = [write("a", [b"x", b"y"])]
    (paths[0].parent / ".ipulaunch-index.npz").write_bytes(damage)
    assert contents(paths) == [b"x", b"y"]


@pytest.fixture
def cache(monkeypatch: Any, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ipulaunch"


def test_a_stale_index_beside_the_files_does_not_hide_the_one_in_the_cache(
    write: Write, scanned: List[str], cache: Path, tmp_path: Path
) -> None:
    paths = [write(f"set/{name}", [b"x"]) for name in "abc"]
    place = paths[0].parent / ".ipulaunch-index.npz"
    open_index(paths, threads=1)
    stale = place.read_bytes()
    for name in "ab":
        write(f"set/{name}", [b"x", b"yy"])
    place.unlink()
    place.mkdir()  # such as nobody can write, not even root
    open_index(paths, threads=1)
    assert kept_at(paths[0].parent) == next(cache.iterdir())
    place.rmdir()
    place.write_bytes(stale)
    os.utime(place, ns=(0, 0))
    scanned.clear()
    assert open_index(paths, threads=1).records == 5
    assert scanned == []
    assert kept_at(paths[0].parent) == next(cache.iterdir())


@pytest.mark.parametrize("error", [RuntimeError, KeyError])
def test_a_user_without_a_home_has_the_index_beside_the_files(error: Any, write: Write, monkeypatch: Any) -> None:
    def home() -> Path:
        raise error("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    paths = [write("set/a", [b"x"])]
    assert contents(paths) == [b"x"]
    assert kept_at(paths[0].parent) == paths[0].parent / ".ipulaunch-index.npz"


def test_hosts_that_share_a_disk_do_not_disturb_each_other(write: Write, cache: Path, monkeypatch: Any) -> None:
    paths, hosts, save = [write("set/a", [b"x"])], ["one"], np.savez
    monkeypatch.setattr("platform.node", lambda: hosts[-1])

    def meanwhile(file: Any, **arrays: Any) -> None:
        if hosts == ["one"]:
            hosts.append("other")  # whose process has the same number
            open_index(paths, threads=1)
        save(file, **arrays)

    monkeypatch.setattr(np, "savez", meanwhile)
    open_index(paths, threads=1)
    assert hosts == ["one", "other"] and not cache.exists()
    assert {path.name for path in paths[0].parent.iterdir()} == {"a", ".ipulaunch-index.npz"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_set_has_its_index_in_the_cache(write: Write, cache: Path) -> None:
    paths = [write("set/a", [b"x"])]
    paths[0].parent.chmod(0o500)
    open_index(paths, threads=1)
    assert len(list(cache.iterdir())) == 1


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


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("record", "hint"),
    [(0, "is it a TFRecord file?"), (1, "the file is damaged; copy it again")],
    ids=["first", "later"],
)
def test_only_a_file_without_a_good_record_may_be_something_else(
    record: int, hint: str, packed: bool, write: Write
) -> None:
    path = write("a", [b"0123456789abcdef"] * 2)
    data = bytearray(path.read_bytes())
    data[32 * record] ^= 0xFF
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(DataError, match=f"record {record} at byte .* the wrong checksum") as caught:
        open_index([path], threads=1)
    assert caught.value.hint == hint


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


@pytest.fixture
def preads(monkeypatch: Any) -> List[int]:
    """The bytes of every read that is made by place."""
    counts: List[int] = []
    pread = os.pread

    def counting(descriptor: int, count: int, offset: int) -> bytes:
        counts.append(count)
        return pread(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", counting)
    return counts


def test_of_large_records_only_the_headers_are_read(write: Write, preads: List[int]) -> None:
    assert len(scan(write("a", [bytes(1 << 18)] * 5)).offsets) == 5
    assert preads == [12] * 5


def test_small_records_come_many_to_a_read(write: Write, preads: List[int]) -> None:
    assert len(scan(write("a", [b"x" * 1000] * 640)).offsets) == 640
    assert len(preads) <= 12


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tfrecord")
    with pytest.raises(DataError, match=r"a\.tfrecord is not a file"):
        open_index([tmp_path / "a.tfrecord"], threads=1)
