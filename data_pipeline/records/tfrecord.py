"""TFRecord files as positions: where each record lies, and whether its bytes are what was written.

A record is its length (8 bytes, little-endian), a CRC of the length (4), the data, and a CRC of the data (4). The CRCs
are CRC-32C, masked as TensorFlow masks them.
"""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import crc32c
import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records.gzip_files import is_gzip, unpacked

HEADER, FOOTER = 12, 4
_SCAN_BYTES = 1 << 16
_LOOK_BYTES = 1 << 13  # around the start of a record, for a collector

Read = Callable[[int, int], bytes]  # (how many, from where)
Buffer = Any  # bytes, bytearrays, memoryviews and arrays: anything contiguous


class RecordPlace(NamedTuple):
    """Where one record lies in its file, for messages."""

    path: Path
    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.path}, record {self.number} at byte {self.offset}"


class Scan(NamedTuple):
    """The records of one file: where the data of each starts, and how long it is."""

    offsets: np.ndarray
    lengths: np.ndarray
    is_gzip: bool  # then offsets are in the unpacked bytes
    contents: Dict[str, np.ndarray]  # what a collector has found in the records
    defect: Optional[DataError] = None  # then these are the records before it


class Collector(ABC):
    """Looks into the records of one file while they are found, so that nobody parses them again later."""

    @abstractmethod
    def add(self, read: Read, offset: int, size: int) -> None:
        """Look into the next record; reading forwards is fast."""

    @abstractmethod
    def columns(self) -> Dict[str, np.ndarray]:
        """What was found, by name."""


def masked_crc(*parts: Buffer) -> int:
    """The CRC that TensorFlow stores for these bytes, taken together."""
    crc = 0
    for part in parts:
        crc = crc32c.crc32c(part, crc)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def scan(path: Path, collector: Optional[Collector] = None) -> Scan:
    """Find the records of a file by its headers, up to its end or to a defect.

    The data between them is not read, except by a collector.
    """
    offsets: List[int] = []
    lengths: List[int] = []
    packed, defect = False, None
    try:
        _require_regular(path)
        packed = is_gzip(path)
        for offset, length in _packed_records(path, collector) if packed else _plain_records(path, collector):
            offsets.append(offset)
            lengths.append(length)
    except DataError as error:
        defect = DataError(error.message, hint=error.hint)  # without a traceback, which would keep the read data alive
    contents = collector.columns() if collector else {}
    return Scan(np.array(offsets, np.int64), np.array(lengths, np.int64), packed, contents, defect)


def _require_regular(path: Path) -> None:
    """Refuse anything but a file: reading a pipe would wait for ever."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file")


def _packed_records(path: Path, collector: Optional[Collector]) -> Iterator[Tuple[int, int]]:
    data = unpacked(path)
    return _records(path, len(data), lambda size, offset: bytes(data[offset : offset + size]), collector)


def _plain_records(path: Path, collector: Optional[Collector]) -> Iterator[Tuple[int, int]]:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # or the kernel reads ahead, beyond each header
            read = _forwards(descriptor, _LOOK_BYTES if collector else 0)
            yield from _records(path, os.fstat(descriptor).st_size, read, collector)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _forwards(descriptor: int, least: int) -> Read:
    """Reads headers one after the other: a whole block after a small record, where more of them may be near."""
    block, start = b"", 0

    def read(count: int, offset: int) -> bytes:
        nonlocal block, start
        if offset + count > start + len(block):
            is_near = 0 < offset < start + len(block) + _SCAN_BYTES
            block, start = os.pread(descriptor, max(count, _SCAN_BYTES if is_near else least), offset), offset
        return block[offset - start : offset - start + count]

    return read


def _records(path: Path, size: int, read: Read, collector: Optional[Collector]) -> Iterator[Tuple[int, int]]:
    """Where the data of each record starts, and how long it is."""
    number = position = 0
    while position < size:
        header = read(HEADER, position)
        place = RecordPlace(path, number, position)
        if len(header) < HEADER:
            raise DataError(f"{place}: the file ends inside a record's header", hint="it was cut off; copy it again")
        length, crc = struct.unpack("<QI", header)
        if masked_crc(header[:8]) != crc:
            hint = "the file is damaged; copy it again" if number else "is it a TFRecord file?"
            raise DataError(f"{place}: the length has the wrong checksum", hint=hint)
        if position + HEADER + length + FOOTER > size:
            missing = position + HEADER + length + FOOTER - size
            raise DataError(
                f"{place}: the last {missing} bytes are missing", hint="the file was cut off; copy it again"
            )
        if collector:
            collector.add(read, position + HEADER, length)
        yield position + HEADER, length
        number, position = number + 1, position + HEADER + length + FOOTER
