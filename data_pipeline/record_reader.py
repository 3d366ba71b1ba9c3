"""Reading records by their place, with positioned reads that several threads can do at once."""

from __future__ import annotations

import functools
import os
from typing import Any, List, Sequence

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.index import Index
from ipulaunch.data_pipeline.tfrecord import FOOTER, Buffer, masked_crc, unpacked

PAGE = 4096
_UNPACKED_FILES = 4  # a packed file is unpacked whole; this bounds the memory that takes


class RecordReader:
    """Fetches records of an indexed data set; what is not as written is refused with its place."""

    def __init__(self, index: Index) -> None:
        self.index = index
        # Packed files allow no positioned reads. Neighbours in an epoch's order often share a file.
        self.unpacked = functools.lru_cache(_UNPACKED_FILES)(lambda file: unpacked(index.paths[file]))

    def read(self, record: int) -> bytes:
        """All bytes of a record."""
        data = bytearray(int(self.index.lengths[record]))
        self.read_into(record, [data])
        return bytes(data)

    def read_into(self, record: int, parts: Sequence[Buffer]) -> None:
        """Put the bytes of a record straight into these buffers, one after the other, and check them."""
        footer = bytearray(FOOTER)
        file = self.index.file_of(record)
        if self.index.packed[file]:
            self._copy(record, file, [*parts, footer])
        else:
            self._pread(record, file, [*parts, footer])
        if masked_crc(*parts) != int.from_bytes(footer, "little"):
            raise DataError(f"{self.index.place(record)}: the data has the wrong checksum", hint="copy the file again")

    def _pread(self, record: int, file: int, parts: List[Any]) -> None:
        expected = int(self.index.lengths[record]) + FOOTER
        try:
            descriptor = os.open(self.index.paths[file], os.O_RDONLY)
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
        data, position = self.unpacked(file), int(self.index.offsets[record])
        for part in parts:
            target = memoryview(part).cast("B")
            target[:] = data[position : position + len(target)]
            position += len(target)


def aligned(shape: Sequence[int], dtype: Any, boundary: int = 64) -> np.ndarray:
    """An uninitialised array that TensorFlow can take over as it is: it copies those that do not start at 64 bytes."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.empty(size + boundary, np.uint8)
    start = -buffer.ctypes.data % boundary
    array: np.ndarray = buffer[start : start + size].view(dtype).reshape(shape)
    return array
