"""Archives of arrays (.npz) that anybody may have written: only numbers, and not more than the reader expects."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from typing import IO, Callable, Dict

import numpy as np

_MAGIC = b"\x93NUMPY\x01\x00"
_LONGEST_HEADER = 4096  # an array of 32 dimensions has some 700 bytes
_ENDING = ".npy"

# All that zipfile, zlib and NumPy's reading of a header are known to raise for damaged or hostile files.
_BROKEN = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, EOFError, struct.error, zlib.error),
    *(SyntaxError, MemoryError, RecursionError, RuntimeError, NotImplementedError, zipfile.BadZipFile, OSError),
    tokenize.TokenError,
)


class NotAnArchive(ValueError):
    """The file is not an archive of plain arrays."""


def read_arrays(file: IO[bytes], wanted: Callable[[str], bool], most_bytes: int) -> Dict[str, np.ndarray]:
    """The wanted arrays of an open archive, by name; unpacked, they may have this many bytes in all."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if wanted(_name(member))]
            size = sum(member.file_size for member in members)
            if size > most_bytes:
                raise NotAnArchive(f"its arrays have {size} bytes, expected at most {most_bytes}")
            return {_name(member): _read(archive, member) for member in members}
    except NotAnArchive:
        raise
    except _BROKEN as error:
        raise NotAnArchive(f"{type(error).__name__}: {error}") from error


def _name(member: zipfile.ZipInfo) -> str:
    name = member.filename
    return name[: -len(_ENDING)] if name.endswith(_ENDING) else name


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as stream:
        # NumPy 1.19 parses a header of any length, even a gigabyte.
        start = stream.read(len(_MAGIC) + 2)
        if not start.startswith(_MAGIC) or int.from_bytes(start[len(_MAGIC) :], "little") > _LONGEST_HEADER:
            raise NotAnArchive(f"{member.filename} is not an array")
        stream.seek(len(_MAGIC))
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.kind not in "biuf":
            raise NotAnArchive(f"{member.filename} holds {dtype}, expected numbers")
        size, there = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
        if size != there:
            raise NotAnArchive(f"{member.filename} has {there} bytes, expected {size} for {dtype} {shape}")
        stream.seek(0)
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # to the end, where zipfile compares the checksum
    return array
