"""Writes pickles like CIFAR-10's published Python batches, opcode by opcode.

They come from Python 2, protocol 2: a dictionary of byte strings, lists and one array of bytes. Python 3 would write
its byte strings and arrays differently, and readers of the published files need not know that form.
"""

from __future__ import annotations

import struct
from typing import List, Mapping, Sequence, Union

import numpy as np

Value = Union[bytes, int, Sequence[int], Sequence[bytes], np.ndarray]

_BATCH = 1000  # items that are appended at once


def old_pickle(values: Mapping[bytes, Value]) -> bytes:
    """The bytes of a dictionary as Python 2 pickled it."""
    parts: List[bytes] = [b"\x80\x02}("]
    for key, value in values.items():
        parts += [_text(key), _value(value)]
    return b"".join([*parts, b"u."])


def _value(value: Value) -> bytes:
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    parts = [b"]"]
    for start in range(0, len(value), _BATCH):
        parts += [b"(", *map(_value, value[start : start + _BATCH]), b"e"]
    return b"".join(parts)


def _text(value: bytes) -> bytes:
    if len(value) < 256:
        return b"U" + bytes([len(value)]) + value
    return b"T" + struct.pack("<i", len(value)) + value


def _number(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    return b"J" + struct.pack("<i", value)


def _array(value: np.ndarray) -> bytes:
    """Two dimensions of uint8, as numpy's own __reduce__ writes them."""
    rows, columns = value.shape
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + _number(0) + b"\x85" + _text(b"b") + b"\x87R"
    kind = b"cnumpy\ndtype\n" + _text(b"u1") + _number(0) + _number(1) + b"\x87R"
    kind += b"(" + _number(3) + _text(b"|") + b"NNN" + _number(-1) + _number(-1) + _number(0) + b"tb"
    shape = _number(rows) + _number(columns) + b"\x86"
    return empty + b"(" + _number(1) + shape + kind + b"\x89" + _text(value.astype(np.uint8).tobytes()) + b"tb"
