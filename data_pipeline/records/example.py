"""Just enough of the protocol-buffer wire format to find where the values of a tf.train.Example lie.

An Example is a map from names to features, and a feature is a list of bytes, floats or whole numbers. Finding the byte
range of a value, without decoding it, lets a reader put it straight into a batch.
"""

from __future__ import annotations

from typing import Callable, Container, Dict, Iterator, NamedTuple, Tuple, Union

Bytes = Union[bytes, bytearray]

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_LONGEST_START = 512  # bytes of a map entry before its value; names have some twenty
_PART = 2048
_KINDS = {_BYTES_LIST: "bytes", _FLOAT_LIST: "floats", _INT64_LIST: "ints"}


class Span(NamedTuple):
    """Where the first value of a feature lies: a byte string, packed floats, or packed whole numbers."""

    kind: str
    start: int
    stop: int


class NotAnExample(ValueError):
    """The bytes are not a tf.train.Example."""


def find_features(record: Bytes, limit: int = -1) -> Dict[str, Span]:
    """The features of an Example by name. `limit` is the size of the record if `data` has only its start."""
    end = len(record) if limit < 0 else limit
    found: Dict[str, Span] = {}
    position = 0
    while position < end:
        field, inside, position = _field(record, position, end)
        while field == 1 and inside < position:  # Example.features
            inner, entry, inside = _field(record, inside, position)
            if inner == 1:  # Features.feature, an entry of the map
                name, span = _entry(record, entry, inside)
                found[name] = span
    return found


def encoded_features(record: bytes) -> Iterator[Tuple[str, bytes]]:
    """Each feature of an Example as it is encoded there, with its name."""
    position, end = 0, len(record)
    while position < end:
        field, inside, position = _field(record, position, end)
        while field == 1 and inside < position:
            start = inside
            inner, entry, inside = _field(record, start, position)
            if inner == 1:
                yield _entry(record, entry, inside)[0], record[start:inside]


def features_by_parts(
    read: Callable[[int, int], bytes], size: int, wanted: Container[str]
) -> Iterator[Tuple[str, Span]]:
    """The wanted features of an Example that is not in memory: `read(count, position)` reads parts of it, forwards.

    It takes only the layout that all known writers choose, and calls others no Example.
    """
    part, base = read(min(size, _PART), 0), 0
    field, position, stop = _field(part, 0, size)
    if (field, stop) != (1, size):
        raise NotAnExample("more than one message of features")
    while position < size:
        if position + _LONGEST_START > base + len(part) < size:
            part, base = read(min(size - position, _PART), position), position
        field, inside, stop = _field(part, position - base, size - base)
        name, start, end = _field(part, inside, stop)
        value, inside, after = _field(part, end, stop)
        if (field, name, value, after) != (1, 1, 2, stop):
            raise NotAnExample("an entry that is not a name and then a feature")
        position = stop + base
        text = part[start:end].decode("utf-8", "replace")
        if text in wanted:
            span = _feature(part, inside, stop)
            yield text, Span(span.kind, span.start + base, span.stop + base)


def _entry(record: Bytes, position: int, end: int) -> Tuple[str, Span]:
    name, span = "", Span("", position, position)
    while position < end:
        field, start, position = _field(record, position, end)
        if field == 1:
            name = record[start:position].decode("utf-8", "replace")
        elif field == 2:
            span = _feature(record, start, position)
    return name, span


def _feature(record: Bytes, position: int, end: int) -> Span:
    while position < end:
        kind, start, position = _field(record, position, end)
        if start < position:
            _, value, stop = _field(record, start, position)
            return Span(_KINDS.get(kind, ""), value, stop)
    return Span("", end, end)


def _field(record: Bytes, position: int, end: int) -> Tuple[int, int, int]:
    """The field of a message that starts here: its number, the first byte of its value, and the byte after it.

    It runs five times for each feature; as a generator over the fields of a message it took twice as long.
    """
    if position + 1 < len(record):
        key, length = record[position], record[position + 1]
        if key & 0x87 == _LENGTH_DELIMITED and length < 0x80 and position + 2 + length <= end:  # as nearly all are
            return key >> 3, position + 2, position + 2 + length
    key, position = _varint(record, position)
    kind = key & 7
    if kind == _LENGTH_DELIMITED:
        length, position = _varint(record, position)
    elif kind == _VARINT:
        _, after = _varint(record, position)
        length = after - position
    elif kind in (_FIXED32, _FIXED64):
        length = 4 if kind == _FIXED32 else 8
    else:
        raise NotAnExample(f"wire type {kind} at byte {position}")
    if position + length > end:
        raise NotAnExample(f"a value of {length} bytes at byte {position} of {end}")
    return key >> 3, position, position + length


def _varint(record: Bytes, position: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(record) or shift > 63:
            raise NotAnExample(f"a broken number at byte {position}")
        byte = record[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
