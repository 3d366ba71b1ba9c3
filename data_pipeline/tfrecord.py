"""TFRecord files as positions: where each record lies, and whether its bytes are what was written.

A record is its length (8 bytes, little-endian), a CRC of the length (4), the data, and a CRC of the data (4). The CRCs
are CRC-32C, masked as TensorFlow masks them.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Callable, List, NamedTuple

import crc32c
import numpy as np

from ipulaunch.configs.errors import DataError

HEADER, FOOTER = 12, 4
_GZIP_MAGIC = b"\x1f\x8b"
_SCAN_BYTES = 1 << 16

Read = Callable[[int, int], bytes]  # (how many, from where)
Buffer = Any  # bytes, bytearrays, memoryviews and arrays: whatever lies in one piece


class RecordPlace(NamedTuple):
    """Where the data of one record lies in its file, for messages."""

    path: Path
    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.path}, record {self.number} at byte {self.offset}"


class Scan(NamedTuple):
    """The records of one file: where the data of each starts, and how long it is."""

    offsets: np.ndarray
    lengths: np.ndarray
    is_gzip: bool  # then offsets count in the unpacked bytes


def masked_crc(*parts: Buffer) -> int:
    """The CRC that TensorFlow stores for these bytes, taken together."""
    crc = 0
    for part in parts:
        crc = crc32c.crc32c(part, crc)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_gzip(path: Path) -> bool:
    """Whether a file is packed, told by its first bytes and not by its name."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP_MAGIC


def unpacked(path: Path) -> bytes:
    """All bytes of a packed file."""
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is packed with gzip and cannot be unpacked: {error}") from error


def scan(path: Path) -> Scan:
    """Find the records of a file by its headers; the data between them is not read."""
    if is_gzip(path):
        data = unpacked(path)
        return _walk(path, len(data), lambda size, offset: data[offset : offset + size], packed=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        # Small records come many to a block; large ones one header to a read.
        block, start = b"", 0

        def read(count: int, offset: int) -> bytes:
            nonlocal block, start
            if not start <= offset <= offset + count <= start + len(block):
                block, start = os.pread(descriptor, _SCAN_BYTES, offset), offset
            return block[offset - start : offset - start + count]

        return _walk(path, size, read, packed=False)
    finally:
        os.close(descriptor)


def _walk(path: Path, size: int, read: Read, packed: bool) -> Scan:
    offsets: List[int] = []
    lengths: List[int] = []
    position = 0
    while position < size:
        header = read(HEADER, position)
        place = RecordPlace(path, len(offsets), position)
        if len(header) < HEADER:
            raise DataError(f"{place}: the file ends inside a record's header", hint="it was cut off; copy it again")
        length, crc = struct.unpack("<QI", header)
        if masked_crc(header[:8]) != crc:
            raise DataError(f"{place}: the length has the wrong checksum", hint="is it a TFRecord file?")
        if position + HEADER + length + FOOTER > size:
            missing = position + HEADER + length + FOOTER - size
            raise DataError(
                f"{place}: the last {missing} bytes are missing", hint="the file was cut off; copy it again"
            )
        offsets.append(position + HEADER)
        lengths.append(length)
        position += HEADER + length + FOOTER
    return Scan(np.array(offsets, np.int64), np.array(lengths, np.int64), packed)
