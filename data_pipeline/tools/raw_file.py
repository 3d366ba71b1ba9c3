"""An image as it was published: a file of its own, or a part of an archive that is read where it lies."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import NamedTuple, Optional

from ipulaunch.configs.errors import DataError

_SUFFIXES = {".jpeg", ".jpg", ".png"}


def is_image(name: str) -> bool:
    """Whether a file of this name is an image; one that starts with a dot is not."""
    return PurePath(name).suffix.lower() in _SUFFIXES and not name.startswith(".")


class RawFile(NamedTuple):
    """The bytes of one image."""

    path: Path  # of the file, or of the archive
    name: str
    offset: int = 0
    size: Optional[int] = None  # None: the whole file

    def __str__(self) -> str:
        return str(self.path) if self.size is None else f"{self.path}: {self.name} at byte {self.offset}"

    def read(self) -> bytes:
        if self.size is None:
            return self.path.read_bytes()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            data = os.pread(descriptor, self.size, self.offset)
        finally:
            os.close(descriptor)
        if len(data) != self.size:
            raise DataError(f"{self}: {len(data)} of {self.size} bytes are there", hint="fetch the archive again")
        return data
