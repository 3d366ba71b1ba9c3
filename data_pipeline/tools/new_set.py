"""A new data set: its directory, its files of records, and the random numbers of its samples."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import shutil
import struct
from pathlib import Path
from typing import BinaryIO, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Union

import numpy as np

from ipulaunch.configs.errors import UsageError
from ipulaunch.data_pipeline.records.files import SPLITS
from ipulaunch.data_pipeline.records.tfrecord import masked_crc

# Bytes or text, whole numbers, or floats as an array: the three kinds of values in a tf.train.Example.
Value = Union[bytes, str, Sequence[int], np.ndarray]

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


class Part(NamedTuple):
    """A file of the set, and the samples that it gets."""

    split: str
    name: str
    samples: range


@contextlib.contextmanager
def new_directory(out: Path) -> Iterator[Path]:
    """A directory to write to; its contents move to `out` when all of them are complete, and otherwise disappear."""
    is_new = not out.exists()
    if not is_new and not out.is_dir():
        raise _not_empty(out)
    out.mkdir(parents=True, exist_ok=True)
    # Inside `out`, which may be a file system of its own.
    making = out / ".making"
    hint = "wait for its end, or give --out a new directory"
    with locked(out, UsageError(f"another process is making a set in {out}", hint=hint)) as is_locked:
        if any(path != making or not is_locked for path in out.iterdir()):
            raise _not_empty(out)
        if making.exists():
            shutil.rmtree(making)  # left by a killed process: a living one would hold the lock
        with temporary_directory(making, is_parent_new=is_new):
            yield making
            for path in sorted(making.iterdir()):
                path.rename(out / path.name)


@contextlib.contextmanager
def temporary_directory(path: Path, *, is_parent_new: bool) -> Iterator[None]:
    """Makes a directory; what is still in it at the end disappears, and so does a new parent that has stayed empty."""
    path.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if is_parent_new:
            with contextlib.suppress(OSError):  # it has contents
                path.parent.rmdir()


@contextlib.contextmanager
def locked(directory: Path, busy: UsageError) -> Iterator[bool]:
    """Inside, no other process holds the lock of this directory; gives False if the file system has no locks.

    Raises `busy` if another process holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield _lock(descriptor, busy)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, busy: UsageError) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise busy from None
    except OSError:
        return False
    return True


def _not_empty(out: Path) -> UsageError:
    return UsageError(f"{out} exists and is not an empty directory", hint="give --out a new directory")


def generator(seed: int, split: str, number: int) -> np.random.Generator:
    """The random numbers of one sample: they depend on nothing else."""
    key, counter = np.array([seed, number], np.uint64), np.array([0, 0, 0, SPLITS.index(split)], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def encode_example(features: Mapping[str, Value]) -> bytes:
    """A tf.train.Example with these features."""
    return example_of(encode_feature(name, value) for name, value in features.items())


def example_of(entries: Iterable[bytes]) -> bytes:
    """A tf.train.Example of encoded features."""
    return _field(1, b"".join(entries))


def encode_feature(name: str, value: Value) -> bytes:
    """A feature as a tf.train.Example holds it."""
    return _field(1, _field(1, name.encode()) + _field(2, _feature(value)))


def write_records(path: Path, records: Iterable[bytes], *, packed: bool = False) -> None:
    """A file of records, plain or packed with gzip; the same records are always the same bytes."""
    with path.open("wb") as file:
        if not packed:
            _write(file, records)
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as stream:
            _write(stream, records)  # type: ignore[arg-type]


def _write(file: BinaryIO, records: Iterable[bytes]) -> None:
    for record in records:
        length = struct.pack("<Q", len(record))
        file.write(length + struct.pack("<I", masked_crc(length)))
        file.write(record)
        file.write(struct.pack("<I", masked_crc(record)))


def _feature(value: Value) -> bytes:
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return _field(_BYTES_LIST, _field(1, value))
    if isinstance(value, np.ndarray):
        return _field(_FLOAT_LIST, _field(1, value.astype("<f4").tobytes()))
    return _field(_INT64_LIST, _field(1, b"".join(_varint(number) for number in value)))


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    digits: List[int] = []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
