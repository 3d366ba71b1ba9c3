"""Archives of arrays (.npz) that anybody may have written: numbers alone, and no more than the reader expects."""

from __future__ import annotations

import ast
import math
import struct
import zipfile
import zlib
from typing import IO, Any, Callable, Dict, Tuple

import numpy as np

_MAGIC = b"\x93NUMPY\x01\x00"
_LONGEST_HEADER = 4096  # an array of 32 dimensions has some 700 bytes
_ENDING = ".npy"

# All that zipfile, zlib and NumPy's reading of a header are known to raise for damaged or hostile files.
_BROKEN = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, EOFError, struct.error, zlib.error),
    *(SyntaxError, MemoryError, RecursionError, RuntimeError, NotImplementedError, zipfile.BadZipFile, OSError),
)


class NotAnArchive(ValueError):
    """The file is no archive of plain arrays."""


def read_arrays(file: IO[bytes], wanted: Callable[[str], bool], most_bytes: int) -> Dict[str, np.ndarray]:
    """The wanted arrays of an open archive, by name; unpacked, they may have so many bytes together."""
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
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise NotAnArchive(f"{member.filename} is not an array")
        (length,) = struct.unpack("<H", stream.read(2))
        if length > _LONGEST_HEADER:
            raise NotAnArchive(f"the header of {member.filename} has {length} bytes")
        dtype, shape, order = _header(stream.read(length), member.filename)
        size = math.prod(shape) * dtype.itemsize
        there = member.file_size - len(_MAGIC) - 2 - length
        if size != there:
            raise NotAnArchive(f"{member.filename} has {there} bytes, expected {size} for {dtype} {shape}")
        data = _all(stream, size)
    return np.frombuffer(data, dtype).reshape(shape, order=order)


def _header(text: bytes, name: str) -> Tuple[Any, Tuple[int, ...], Any]:
    about = ast.literal_eval(text.decode("latin-1").strip())
    descr, shape, is_fortran = about["descr"], about["shape"], about["fortran_order"]
    # Text alone: the longer form describes structures of objects and shapes within shapes.
    if not isinstance(descr, str) or len(descr) > 16:
        raise NotAnArchive(f"{name} holds structures")
    dtype = np.dtype(descr)
    if dtype.kind not in "biuf":
        raise NotAnArchive(f"{name} holds {dtype}, expected numbers")
    if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise NotAnArchive(f"{name} has the shape {shape}")
    return dtype, shape, "F" if is_fortran is True else "C"


def _all(stream: IO[bytes], size: int) -> bytearray:
    """As many bytes, which the archive only claims to have; a writable buffer, as an array's own memory is."""
    data = bytearray(size)
    missing = memoryview(data)
    while len(missing):
        count = stream.readinto(missing)  # type: ignore[attr-defined]
        if not count:
            raise NotAnArchive(f"{len(missing)} of {size} bytes are missing")
        missing = missing[count:]
    stream.read(1)  # to the end, where the checksum is compared
    return data
