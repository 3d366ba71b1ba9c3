"""Images as plain pixels, in the simplest published form: PPM, a line with the size, and three bytes for each pixel."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

FORMAT = "PPM"
_MAGIC = b"P6\n"
_START = re.compile(rb"P6\n([1-9]\d{0,4}) ([1-9]\d{0,4})\n255\n")


class NotPixels(ValueError):
    """The bytes are not an image of plain pixels."""


class Pixels(NamedTuple):
    """The size of an image, and where its pixels begin."""

    height: int
    width: int
    start: int

    @property
    def size(self) -> int:
        """The bytes of the whole image."""
        return self.start + 3 * self.height * self.width


def is_pixels(data: bytes) -> bool:
    """Whether the bytes are meant to be plain pixels."""
    return data[: len(_MAGIC)] == _MAGIC


def encode_pixels(pixels: np.ndarray) -> bytes:
    """An image, uint8 [height, width, 3], in this form."""
    height, width, _ = pixels.shape
    return b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes()


def pixels_of(data: bytes) -> Pixels:
    """What the start of an image says."""
    found = _START.match(data)
    if found is None:
        raise NotPixels(f"no {FORMAT} with 8 bits a colour: it starts with {data[:8].hex() or 'nothing'}")
    return Pixels(int(found[2]), int(found[1]), found.end())
