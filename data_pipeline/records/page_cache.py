"""What the kernel keeps of files in memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Iterable

from ipulaunch.configs.errors import NotReadyError


def forget(paths: Iterable[Path]) -> None:
    """Let the kernel drop these files from its memory, so that they are read from their disk again."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # what is not yet written cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def require_forgotten(path: Path) -> None:
    """An error if a file is in memory although it was to be forgotten, as far as its file system tells."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # it is not in memory, or the file system does not tell
            if os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT):
                raise NotReadyError(
                    f"{path} stays in memory: its file system cannot be read cold",
                    hint="measure a set on another disk, with --data-dir, or leave --cold out",
                )
    finally:
        os.close(descriptor)
