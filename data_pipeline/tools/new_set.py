"""A data set in the making: its directory, and the random numbers of its samples."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Iterator

import numpy as np

from ipulaunch.configs.errors import UsageError

SPLITS = {"train": 0, "validation": 1}


@contextlib.contextmanager
def new_directory(out: Path) -> Iterator[Path]:
    """A directory to write to; its contents come to stand in `out` when all of them are there, else none does."""
    is_new = not out.exists()
    if not is_new and not (out.is_dir() and next(out.iterdir(), None) is None):
        raise UsageError(f"{out} exists and is not an empty directory", hint="give --out a new directory")
    # Inside `out`, which may be a file system of its own.
    making = out / ".making"
    making.mkdir(parents=True)
    try:
        yield making
        for path in sorted(making.iterdir()):
            path.rename(out / path.name)
        is_new = False
    finally:
        shutil.rmtree(making, ignore_errors=True)
        if is_new:
            with contextlib.suppress(OSError):
                out.rmdir()


def generator(seed: int, split: str, number: int) -> np.random.Generator:
    """The random numbers of one sample: they depend on nothing else."""
    key, counter = np.array([seed, number], np.uint64), np.array([0, 0, 0, SPLITS[split]], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
