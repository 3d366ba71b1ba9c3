"""Writing TFRecord files: examples as bytes, and records around them."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import BinaryIO, Iterable, List, Mapping, Sequence, Union

import numpy as np

from ipulaunch.data_pipeline.records.tfrecord import masked_crc

# Bytes or text, whole numbers, or floats as an array: the three kinds of values in a tf.train.Example.
Value = Union[bytes, str, Sequence[int], np.ndarray]

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


def encode_example(features: Mapping[str, Value]) -> bytes:
    """A tf.train.Example with these features."""
    entries = [_field(1, _field(1, name.encode()) + _field(2, _feature(value))) for name, value in features.items()]
    return _field(1, b"".join(entries))


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
