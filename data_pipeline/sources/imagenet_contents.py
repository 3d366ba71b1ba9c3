"""What the index keeps of every ImageNet record, so that training parses none: 24 bytes, and 16 per marked object.

A record whose image the quick path cannot take (a PNG, CMYK, anything odd or damaged) has no width: it is read, parsed
and judged as a whole whenever it is needed.
"""

from __future__ import annotations

import array
import struct
from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np

from ipulaunch.data_pipeline.records.example import NotAnExample, Span, features_by_parts
from ipulaunch.data_pipeline.records.index import Contents
from ipulaunch.data_pipeline.records.pixels import FORMAT, pixels_of
from ipulaunch.data_pipeline.records.tfrecord import Collector, Read, Scan
from ipulaunch.data_pipeline.sources.image_header import NotAnImage, ends_properly, height_place, read_header

IMAGE, LABEL = "image/encoded", "image/class/label"
BOX = tuple(f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax"))

_WANTED = {IMAGE, LABEL, *BOX}
_LONGEST_VARINT = 10  # bytes
_HEADER_PARTS = (1 << 11, 1 << 17)  # bytes of an image in which its header is looked for; cameras write previews there
_MOST, _MOST_OBJECTS = 2**31 - 1, 2**16 - 1
_COORDINATES = "image_boxes"
# By record: the array module's type codes, which are also NumPy's.
_COLUMNS = {
    "image_starts": "i",  # in the record
    "image_sizes": "i",
    "image_labels": "i",
    "image_heights": "H",
    "image_widths": "H",  # 0: the record is odd
    "image_height_places": "I",  # in the image, see image_header.height_place; of plain pixels, where they begin
    "image_objects": "H",
}


class Pictures(NamedTuple):
    """The kept contents of a set, by record."""

    starts: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray  # from 1
    heights: np.ndarray
    widths: np.ndarray
    height_places: np.ndarray
    first_boxes: np.ndarray  # and the total
    boxes: np.ndarray  # [boxes, 4], as parts of the image


def pictures(contents: Dict[str, np.ndarray]) -> Pictures:
    """The contents that the index of a set has."""
    starts, sizes, labels, heights, widths, places, objects = (contents[name] for name in _COLUMNS)
    first_boxes = np.concatenate([[0], np.cumsum(objects)]).astype(np.int32)
    boxes = contents[_COORDINATES].reshape(-1, 4)
    return Pictures(starts, sizes, labels, heights, widths, places, first_boxes, boxes)


class PictureContents(Contents):
    """Place, size and label of each image, and its marked objects."""

    def collector(self) -> Collector:
        return _PictureCollector()

    def fit(self, scan: Scan) -> bool:
        contents, records = scan.contents, len(scan.offsets)
        if not set(contents) >= {*_COLUMNS, _COORDINATES} or any(len(contents[name]) != records for name in _COLUMNS):
            return False
        if not records:
            return True
        if any(contents[name].dtype != kind for name, kind in {**_COLUMNS, _COORDINATES: "f"}.items()):
            return False
        starts, sizes, _, heights, widths, places, objects = (contents[name].astype(np.int64) for name in _COLUMNS)
        lie_inside = (starts >= 0) & (sizes > 0) & (starts + sizes <= scan.lengths) & (places + 2 <= sizes)
        is_sound = lie_inside & (heights > 0) | (widths == 0)
        return bool(np.all(is_sound) and len(contents[_COORDINATES]) == 4 * objects.sum())


class _Row(NamedTuple):
    start: int
    size: int
    label: int
    height: int
    width: int
    height_place: int
    objects: int


_ODD = _Row(0, 0, 0, 0, 0, 0, 0)


class _PictureCollector(Collector):
    def __init__(self) -> None:
        self.rows = {name: array.array(code) for name, code in _COLUMNS.items()}
        self.coordinates = array.array("f")

    def add(self, read: Read, offset: int, size: int) -> None:
        try:
            row, boxes = _look(lambda count, position: read(count, offset + position), size)
        except (NotAnExample, NotAnImage, struct.error):
            row, boxes = _ODD, []
        for column, value in zip(self.rows.values(), row):
            column.append(value)
        for box in boxes:
            self.coordinates.extend(box)

    def columns(self) -> Dict[str, np.ndarray]:
        found = {name: np.array(values, np.dtype(_COLUMNS[name])) for name, values in self.rows.items()}
        return {**found, _COORDINATES: np.array(self.coordinates, np.float32)}


def _look(read: Read, size: int) -> Tuple[_Row, List[Tuple[float, ...]]]:
    """The row of a record, and its boxes; an error if it is odd."""
    place, header, height_at, label = Span("", 0, 0), None, 0, 0
    columns: Dict[str, Any] = {}
    for name, span in features_by_parts(read, size, _WANTED):
        if name == IMAGE and span.kind == "bytes":
            place, (header, height_at) = span, _image_header(read, span)
        elif name == LABEL and span.kind == "ints":
            label = varint(read(min(span.stop - span.start, _LONGEST_VARINT), span.start))
        elif span.kind == "floats":
            count = (span.stop - span.start) // 4
            columns[name] = struct.unpack(f"<{count}f", read(4 * count, span.start))
    if header is None or header.format not in ("JPEG", FORMAT) or header.channels not in (1, 3):
        raise NotAnImage("no JPEG in grey or colour, and no plain pixels")
    boxes = list(zip(*(columns[name] for name in BOX))) if set(BOX) <= set(columns) else []
    if max(place.stop, abs(label)) > _MOST or len(boxes) > _MOST_OBJECTS:
        raise NotAnImage("more than the columns hold")
    return _Row(place.start, place.stop - place.start, label, header.height, header.width, height_at, len(boxes)), boxes


def _image_header(read: Read, span: Span) -> Tuple[Any, int]:
    size = span.stop - span.start
    for part in _HEADER_PARTS:
        data = read(min(size, part), span.start)
        try:
            header = read_header(data)
            if header.format == FORMAT:
                return header, _start_of_pixels(data, size)
            height_at = height_place(data) if header.format == "JPEG" else 0
            break
        except NotAnImage:
            if part == _HEADER_PARTS[-1] or len(data) == size:
                raise
    if not ends_properly(read(2, span.stop - 2)):
        raise NotAnImage("an image that may have been cut off")
    return header, height_at


def _start_of_pixels(data: bytes, size: int) -> int:
    pixels = pixels_of(data)
    if pixels.size != size:
        raise NotAnImage(f"{size} bytes, expected {pixels.size}")
    return pixels.start


def varint(data: bytes) -> int:
    """The whole number that these bytes start with, in two's complement."""
    value = 0
    for shift, byte in enumerate(data[:_LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            break
    return value - (value >> 63 << 64)
