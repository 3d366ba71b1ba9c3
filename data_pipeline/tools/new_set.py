"""A new data set: its directory, its files, and the random numbers of its samples."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import Iterator, NamedTuple

import numpy as np

from ipulaunch.configs.errors import UsageError
from ipulaunch.data_pipeline.records.files import SPLITS


class Part(NamedTuple):
    """A file of the set, and the samples that it gets."""

    split: str
    name: str
    samples: range


@contextlib.contextmanager
def new_directory(out: Path) -> Iterator[Path]:
    """A directory to write to; its contents move to `out` when all of them are complete, and otherwise disappear."""
    is_new = not out.exists()
    if not is_new and not out.is_dir():
        raise _not_empty(out)
    out.mkdir(parents=True, exist_ok=True)
    # Inside `out`, which may be a file system of its own.
    making = out / ".making"
    hint = "wait for its end, or give --out a new directory"
    with locked(out, UsageError(f"another process is making a set in {out}", hint=hint)) as is_locked:
        if any(path != making or not is_locked for path in out.iterdir()):
            raise _not_empty(out)
        if making.exists():
            shutil.rmtree(making)  # left by a killed process: a living one would hold the lock
        making.mkdir()
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


@contextlib.contextmanager
def locked(directory: Path, busy: UsageError) -> Iterator[bool]:
    """Inside, no other process holds the lock of this directory; gives False if the file system has no locks.

    Raises `busy` if another process holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        yield _lock(descriptor, busy)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, busy: UsageError) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise busy from None
    except OSError:
        return False
    return True


def _not_empty(out: Path) -> UsageError:
    return UsageError(f"{out} exists and is not an empty directory", hint="give --out a new directory")


def generator(seed: int, split: str, number: int) -> np.random.Generator:
    """The random numbers of one sample: they depend on nothing else."""
    key, counter = np.array([seed, number], np.uint64), np.array([0, 0, 0, SPLITS.index(split)], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
