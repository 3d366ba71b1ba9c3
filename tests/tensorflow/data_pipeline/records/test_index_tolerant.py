"""What `--bad-records skip` asks of the index: what can be read is kept, and every defect is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List

import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records.index import open_index
from ipulaunch.data_pipeline.records.reader import RecordReader

Write = Callable[..., Path]
SECOND = 12 + 10 + 4  # where the second record starts


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: SECOND + 20])


def cut_in_a_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: SECOND + 5])


def change_a_length(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[SECOND] ^= 1
    path.write_bytes(data)


def cut_packed(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("harm", "packed", "left", "said"),
    [
        (truncate, False, [b"b-00000000"], "b, record 1 at byte 26: the last 6 bytes are missing"),
        (cut_in_a_header, False, [b"b-00000000"], "b, record 1 at byte 26: the file ends inside a record's header"),
        (change_a_length, False, [b"b-00000000"], "b, record 1 at byte 26: the length has the wrong checksum"),
        (cut_packed, True, [], "b is packed with gzip and cannot be unpacked"),
        (Path.unlink, False, [], "b cannot be read: No such file or directory"),
    ],
    ids=["truncated", "cut in a header", "length changed", "gzip", "vanished"],
)
def test_the_records_before_a_defect_are_kept_and_the_defect_is_told(
    harm: Any, packed: bool, left: List[bytes], said: str, write: Write
) -> None:
    paths = [write(name, [b"%s-%08d" % (name.encode(), n) for n in range(2)], packed=packed) for name in "abc"]
    harm(paths[1])
    for _ in range(2):  # what is kept of the first look says the same
        index = open_index(paths, threads=2, tolerant=True)
        reader = RecordReader(index)
        found = [reader.read(record) for record in range(index.records)]
        assert found == [b"a-00000000", b"a-00000001", *left, b"c-00000000", b"c-00000001"]
        (defect,) = index.defects
        assert said in defect.message
    with pytest.raises(DataError, match="b.*" + said.split(": ")[-1][-20:]):
        open_index(paths, threads=2)


def test_a_whole_set_has_no_defects(write: Write) -> None:
    assert open_index([write("a", [b"x"])], threads=1, tolerant=True).defects == ()
