"""Files packed with gzip: unpacked whole, and only up to a size, as a few kilobytes can unpack to gigabytes."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from ipulaunch.configs.errors import DataError

_MAGIC = b"\x1f\x8b"
_MOST_BYTES = 1 << 33  # the published sets have files of some hundred megabytes
_PIECE = 1 << 24


def is_gzip(path: Path) -> bool:
    """Whether a file is packed, by its first bytes and not by its name."""
    try:
        with path.open("rb") as file:
            return file.read(2) == _MAGIC
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def unpacked(path: Path) -> bytes:
    """All bytes of a packed file."""
    whole = io.BytesIO()
    try:
        with gzip.open(path, "rb") as stream:
            for piece in iter(lambda: stream.read(_PIECE), b""):
                whole.write(piece)
                if whole.tell() > _MOST_BYTES:
                    raise DataError(f"{path} has more than {_MOST_BYTES} bytes when unpacked", hint="is it a data set?")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is packed with gzip and cannot be unpacked: {error}") from error
    return whole.getvalue()
