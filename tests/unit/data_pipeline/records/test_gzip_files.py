"""Packed files against the standard library, which decides what a sound gzip file is, with both ways of unpacking."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records import gzip_files
from ipulaunch.data_pipeline.records.memory import ReusedMemory

COUNTS = np.random.Generator(np.random.Philox(1)).poisson(1.5, 300_000).astype("<i2").tobytes()  # more than one piece
NOISE = np.random.Generator(np.random.Philox(2)).bytes(3000)
PACKED = gzip.compress(NOISE * 3, mtime=0)
_NAME, _EXTRA, _COMMENT, _HEADER_CRC = 8, 4, 16, 2


def member(data: bytes, flags: int = 0, more: bytes = b"", method: int = 8) -> bytes:
    """A gzip member with a header of our own."""
    engine = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = engine.compress(data) + engine.flush()
    header = b"\x1f\x8b" + bytes([method, flags]) + bytes(6) + more
    return header + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def header_crc(data: bytes, change: int = 0) -> bytes:
    """A member whose header has a checksum, which the standard library skips."""
    start = b"\x1f\x8b\x08" + bytes([_HEADER_CRC]) + bytes(6)
    return member(data, _HEADER_CRC, struct.pack("<H", (zlib.crc32(start) & 0xFFFF) ^ change))


def changed(data: bytes, place: int, value: Optional[int] = None) -> bytes:
    copy = bytearray(data)
    copy[place] = copy[place] ^ 0xFF if value is None else value
    return bytes(copy)


FILES: Dict[str, bytes] = {
    "one member": PACKED,
    "many pieces": gzip.compress(COUNTS),
    "stored, not packed": gzip.compress(COUNTS, 0),
    "a long run": gzip.compress(bytes(3 << 20)),
    "an empty member": gzip.compress(b""),
    "no member": b"",
    "a magic number alone": b"\x1f\x8b",
    "two members": PACKED + gzip.compress(NOISE),
    "the same member twice": PACKED * 2,  # whose last checksum and size are also those of the first
    "many members": gzip.compress(b"abc") * 500,
    "an empty member last": PACKED + gzip.compress(b""),
    "zeros after it": PACKED + bytes(1000),
    "zeros between members": PACKED + bytes(7) + PACKED,
    "garbage after it": PACKED + b"garbage",
    "zeros and garbage": PACKED + bytes(5) + b"x",
    "half a magic number after it": PACKED + b"\x1f",
    "half a member after it": PACKED + PACKED[:100],
    "a name": member(NOISE, _NAME, b"name\0"),
    "a name that does not end": member(NOISE, _NAME, b"name" * 1000)[:2000],
    "extra bytes": member(NOISE, _EXTRA, struct.pack("<H", 300) + bytes(300)),
    "a comment": member(NOISE, _COMMENT, b"words\0"),
    "a checksum of the header": header_crc(NOISE),
    "a wrong checksum of the header": header_crc(NOISE, 1),
    "reserved flags": member(NOISE, 0xE0),
    "another method": member(NOISE, method=7),
    "cut in the header": PACKED[:5],
    "cut in the data": PACKED[:2000],
    "cut in the data of many pieces": gzip.compress(COUNTS)[:-20000],
    "cut in the checksum": PACKED[:-6],
    "cut in the size": PACKED[:-1],
    "a wrong checksum": changed(PACKED, -8),
    "a wrong size": changed(PACKED, -1),
    "a larger size": changed(PACKED, -4, 0xFF),
    "no size": PACKED[:-4] + bytes(4),
    "a changed byte": changed(PACKED, 2000),
    "a wrong kind of block": changed(PACKED, 10, 0x07),
    "too far back": member(b"")[:10] + b"\x73\x04\x61\x00" + bytes(8),
}


@pytest.fixture(params=["isal", "standard"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of the two ways unpacks."""
    if request.param == "standard":
        monkeypatch.setattr(gzip_files, "igzip_lib", None)
    else:
        assert gzip_files.igzip_lib is not None, "the extra [cpu] brings isal, which the tests need"
    return str(request.param)


def as_usual(data: bytes) -> Optional[bytes]:
    """What the standard library unpacks; None for what it refuses."""
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(data)).read()
    except (OSError, EOFError, zlib.error):
        return None


def as_ours(path: Path, data: bytes) -> Optional[bytes]:
    path.write_bytes(data)
    try:
        return bytes(gzip_files.unpacked(path))
    except DataError:
        return None


@pytest.mark.core
@pytest.mark.parametrize("name", FILES)
def test_the_standard_library_decides(name: str, way: str, tmp_path: Path) -> None:
    assert as_ours(tmp_path / "a", FILES[name]) == as_usual(FILES[name])


def test_the_table_has_both_kinds() -> None:
    refused = {name for name, data in FILES.items() if as_usual(data) is None}
    assert 10 < len(refused) < len(FILES) - 10


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    changes=st.lists(st.tuples(st.integers(0, len(PACKED) * 2 - 1), st.integers(0, 255)), max_size=3),
    length=st.integers(0, len(PACKED) * 2),
)
def test_any_damage_ends_as_in_the_standard_library(
    changes: Any, length: int, way: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(PACKED * 2)
    for place, value in changes:
        data[place] = value
    cut = bytes(data[:length])
    assert as_ours(tmp_path_factory.getbasetemp() / f"damaged-{way}", cut) == as_usual(cut)


@pytest.mark.parametrize("place", [-8, 2000, 10], ids=["checksum", "data", "block"])
def test_both_ways_say_the_same(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(changed(PACKED, place, 0x07))
    said = []
    for module in (gzip_files.igzip_lib, None):
        monkeypatch.setattr(gzip_files, "igzip_lib", module)
        with pytest.raises(DataError, match="is packed with gzip and cannot be unpacked") as raised:
            gzip_files.unpacked(path)
        said.append(raised.value.message)
    assert said[0] == said[1]


def test_unpacked_files_share_memory_one_after_the_other(way: str, tmp_path: Path) -> None:
    """Whatever their sizes: a block for each size would fill the memory with those of earlier files."""
    memory, path = ReusedMemory(), tmp_path / "a"
    for size in (5000, 8000, 4097, 6001):
        data = COUNTS[:size]
        path.write_bytes(gzip.compress(data))
        assert bytes(gzip_files.unpacked(path, memory)) == data
    assert {size: len(blocks) for size, blocks in memory.free.items()} == {8192: 1}


def test_a_size_that_lies_takes_no_memory(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    array: Callable[..., Any] = ReusedMemory.array

    def noted(memory: ReusedMemory, shape: Any, dtype: Any) -> Any:
        asked.append(int(np.prod(shape)))
        return array(memory, shape, dtype)

    monkeypatch.setattr(ReusedMemory, "array", noted)
    assert as_ours(tmp_path / "a", PACKED[:-4] + b"\xff\xff\xff\xff") is None
    assert max(asked) <= 1 << 24  # deflate packs 1032 bytes into one at most


def test_too_much_is_refused_while_it_is_unpacked(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzip_files, "_MOST_BYTES", 1 << 20)
    path = tmp_path / "a"
    for size in (1 << 21, 1 << 26):
        path.write_bytes(gzip.compress(bytes(size)))
        with pytest.raises(DataError, match="more than 1048576 bytes when unpacked"):
            gzip_files.unpacked(path)
