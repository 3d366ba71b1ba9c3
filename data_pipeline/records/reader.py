"""Reads records by position; several threads can read at once."""

from __future__ import annotations

import functools
import os
from typing import Any, List, Sequence

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records.gzip_files import unpacked
from ipulaunch.data_pipeline.records.index import Index
from ipulaunch.data_pipeline.records.memory import ReusedMemory
from ipulaunch.data_pipeline.records.tfrecord import FOOTER, Buffer, masked_crc

_COPY_OR_SKIP = "copy the file again, or replace damaged samples by others: --bad-records skip"
_PATHS = 2048
UNPACKED_FILES = 4  # a packed file is unpacked whole; this bounds the memory


class RecordReader:
    """Fetches records of an indexed data set; a record that is not as written is an error with its place."""

    def __init__(self, index: Index) -> None:
        self.index = index
        # Packed files allow no positioned reads. Neighbours in an epoch's order often share a file.
        memory = ReusedMemory()
        self.unpacked = functools.lru_cache(UNPACKED_FILES)(lambda file: unpacked(index.paths[file], memory))
        self.path = functools.lru_cache(_PATHS)(lambda file: os.fspath(index.paths[file]))  # making one takes 5 us

    def length(self, record: int) -> int:
        """The length of a record, checked against the end of its file: an index may be wrong."""
        file, length = self.index.file_of(record), int(self.index.lengths[record])
        end = int(self.index.offsets[record]) + length + FOOTER
        if self.index.packed[file] and end > len(self.unpacked(file)):
            raise DataError(
                f"{self.index.place(record)}: it ends at byte {end} of {len(self.unpacked(file))}",
                hint="the file was changed after it was indexed; start again",
            )
        return length

    def following(self, record: int) -> int:
        """The record to try if this one cannot be read: the next of its file, if the file still has it."""
        file = self.index.file_of(record)
        end = int(self.index.offsets[record]) + int(self.index.lengths[record]) + FOOTER
        return self.index.next_there(record + 1 if self._size(file) >= end else int(self.index.firsts[file + 1]))

    def _size(self, file: int) -> int:
        """The bytes of a file, unpacked; empty if it cannot be opened any more."""
        try:
            if self.index.packed[file]:
                return len(self.unpacked(file))
            with self.index.paths[file].open("rb") as there:
                return os.fstat(there.fileno()).st_size
        except (OSError, DataError):
            return 0

    def read(self, record: int) -> bytes:
        """All bytes of a record."""
        data = bytearray(self.length(record))
        self.read_into(record, [data])
        return bytes(data)

    def read_into(self, record: int, parts: Sequence[Buffer]) -> None:
        """Put the bytes of a record straight into these buffers, one after the other, and check them."""
        footer = bytearray(FOOTER)
        self._read_parts(record, self.index.file_of(record), [*parts, footer])
        self._check(record, footer, *parts)

    def fill(self, record: int, file: int, room: np.ndarray) -> None:
        """The same with a record of a known file and its footer, of FOOTER bytes, into one piece of memory."""
        self._read_parts(record, file, [room])
        self._check(record, room[-FOOTER:], room[:-FOOTER])

    def _check(self, record: int, footer: Buffer, *parts: Buffer) -> None:
        if masked_crc(*parts) != int.from_bytes(footer, "little"):
            raise DataError(f"{self.index.place(record)}: the data has the wrong checksum", hint=_COPY_OR_SKIP)

    def _read_parts(self, record: int, file: int, parts: List[Any]) -> None:
        if self.index.packed[file]:
            self._copy(record, file, parts)
        else:
            self._pread(record, file, parts)

    def _pread(self, record: int, file: int, parts: List[Any]) -> None:
        expected = int(self.index.lengths[record]) + FOOTER
        try:
            descriptor = os.open(self.path(file), os.O_RDONLY)
            try:
                found = os.preadv(descriptor, parts, int(self.index.offsets[record]))
            finally:
                os.close(descriptor)
        except OSError as error:
            hint = "the files must stay as they are during a run"
            raise DataError(f"{self.index.place(record)}: {error.strerror}", hint=hint) from error
        if found != expected:
            raise DataError(
                f"{self.index.place(record)}: {found} of {expected} bytes are there",
                hint="the file was changed after it was indexed; start again",
            )

    def _copy(self, record: int, file: int, parts: List[Any]) -> None:
        self.length(record)
        data, position = self.unpacked(file), int(self.index.offsets[record])
        for part in parts:
            target = np.frombuffer(part, np.uint8)
            target[:] = np.frombuffer(data, np.uint8, len(target), position)  # lets other threads run
            position += len(target)
