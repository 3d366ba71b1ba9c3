"""The smallest CMYK JPEG there is: one block of one colour, written bit by bit. TensorFlow reads CMYK, writes none."""

from __future__ import annotations

import struct
from typing import Sequence


def cmyk_jpeg(inks: Sequence[int] = (0, 255, 255, 255)) -> bytes:
    """8 x 8 pixels; the inks as stored, 255 for none, as the Adobe marker says."""
    tables = _segment(0xDB, b"\x00" + b"\x01" * 64)  # quantisation by 1
    # Constant part: twelve codes of 4 bits for sizes 0 to 11. The rest: one code, "0", the end of the block.
    tables += _segment(0xC4, b"\x00" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12)))
    tables += _segment(0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\x00")
    adobe = _segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0))
    frame = _segment(0xC0, struct.pack(">BHHB", 8, 8, 8, 4) + b"".join(bytes([n, 0x11, 0]) for n in range(1, 5)))
    scan = _segment(0xDA, b"\x04" + b"".join(bytes([n, 0]) for n in range(1, 5)) + b"\x00\x3f\x00")
    bits = "".join(_constant(8 * (ink - 128)) + "0" for ink in inks)
    bits += "1" * (-len(bits) % 8)
    data = bytes(int(bits[start : start + 8], 2) for start in range(0, len(bits), 8)).replace(b"\xff", b"\xff\x00")
    return b"\xff\xd8" + adobe + tables + frame + scan + data + b"\xff\xd9"


def _segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def _constant(value: int) -> str:
    """The size of a number in bits, then its bits; negative ones as what is missing to all ones."""
    size = abs(value).bit_length()
    stored = value if value >= 0 else value + (1 << size) - 1
    return f"{size:04b}" + (f"{stored:0{size}b}" if size else "")
