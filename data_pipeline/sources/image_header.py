"""The format and size of an image, and whether it is complete, without decoding it."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ipulaunch.data_pipeline.records.pixels import FORMAT, NotPixels, is_pixels, pixels_of

_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_STARTS_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # these three are tables, not frames
_SEQUENTIAL = (0xC0, 0xC1)  # frames coded with Huffman, 8 or 12 bits
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9
_JPEG_END, _PNG_END = b"\xff\xd9", b"IEND\xaeB`\x82"
_LONGEST_SIDE = 65535  # the most that a JPEG can have; a PNG that claims more is not a picture
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}


class NotAnImage(ValueError):
    """The bytes are neither a JPEG nor a PNG."""


class ImageHeader(NamedTuple):
    """Format and size of an image."""

    format: str  # "JPEG", "PNG" or "PPM", which is plain pixels
    height: int
    width: int
    channels: int  # 1 is grey, 3 colour, 4 CMYK in a JPEG


def read_header(data: bytes) -> ImageHeader:
    """The header of an image; an error if there is none."""
    if data[:8] == _PNG:
        if len(data) < 33 or data[12:16] != b"IHDR":
            raise NotAnImage("a PNG without a header")
        width, height, _, colour = struct.unpack(">IIBB", data[16:26])
        return _sound(ImageHeader("PNG", height, width, _PNG_CHANNELS.get(colour, 0)))
    if is_pixels(data):
        try:
            pixels = pixels_of(data)
        except NotPixels as error:
            raise NotAnImage(str(error)) from error
        return _sound(ImageHeader(FORMAT, pixels.height, pixels.width, 3))
    if data[:2] != _JPEG:
        raise NotAnImage(f"neither a JPEG nor a PNG: it starts with {data[:4].hex() or 'nothing'}")
    height, width, channels = struct.unpack_from(">HHB", data, _frame(data) + 5)
    return _sound(ImageHeader("JPEG", height, width, channels))


def height_place(data: bytes) -> int:
    """Where the height of a JPEG lies that still is a sound image with a smaller height; 0 for all other images.

    A decoder then stops earlier. It takes a JPEG whose rows follow each other: a single scan, not progressive.
    """
    frame = _frame(data)
    if data[frame + 1] not in _SEQUENTIAL:
        return 0
    position = frame
    while data[position + 1] != _START_OF_SCAN:
        position += 2 + int(struct.unpack_from(">H", data, position + 2)[0])
        if position + 5 > len(data) or data[position] != 0xFF:
            return 0
    return frame + 5 if data[position + 4] == data[frame + 9] else 0


def ends_properly(data: bytes) -> bool:
    """Whether the last bytes of a JPEG are its end mark."""
    return data[-2:] == _JPEG_END


def require_end(data: bytes) -> None:
    """Refuse an image that was cut off after its header: TensorFlow does not decode one without its end mark.

    Some valid files have more data after the mark, so it may be anywhere after the header. It cannot occur in the
    coded pixels of a JPEG, and a small preview with its own end mark comes before the frame.
    """
    if is_pixels(data):
        expected = pixels_of(data).size
        if len(data) != expected:
            raise NotAnImage(f"a {FORMAT} of {len(data)} bytes, expected {expected}")
        return
    is_png = data[:8] == _PNG
    if (data.find(_PNG_END, 33) if is_png else data.find(_JPEG_END, _frame(data))) < 0:
        raise NotAnImage(f"a {'PNG' if is_png else 'JPEG'} that was cut off: its end mark is missing")


def _frame(data: bytes) -> int:
    """Walk the segments of a JPEG to the one that holds its size."""
    position = 2
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            raise NotAnImage(f"a JPEG without a marker at byte {position}")
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
        elif marker in _WITHOUT_LENGTH:
            position += 2
        elif marker in (_START_OF_SCAN, _END_OF_IMAGE):
            raise NotAnImage("a JPEG whose data comes before its size")
        elif marker in _STARTS_OF_FRAME:
            if position + 10 > len(data):
                break
            return position
        else:
            position += 2 + int(struct.unpack_from(">H", data, position + 2)[0])
    raise NotAnImage("a JPEG that ends inside its header")


def _sound(header: ImageHeader) -> ImageHeader:
    if not header.channels or not all(0 < side <= _LONGEST_SIDE for side in (header.height, header.width)):
        raise NotAnImage(f"a {header.format} of {header.width} x {header.height} with {header.channels} channels")
    return header
