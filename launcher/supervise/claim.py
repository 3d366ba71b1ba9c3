"""The launcher that works on a run: one at a time, and known to whoever asks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import time
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import RunDirectory, writable
from ipulaunch.configs.runs.untrusted import parse_json, read_text

PATIENCE_S = 1.0  # with others who hold a lock; those who only look let go at once
_LOOK_AGAIN_S = 0.02
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class Holder(NamedTuple):
    """The process that works on a run."""

    host: str
    pid: int

    @property
    def is_known(self) -> bool:
        return self != _UNKNOWN

    @property
    def is_here(self) -> bool:
        return self.host == platform.node()


_UNKNOWN = Holder("", 0)  # where the record cannot be read


@contextlib.contextmanager
def claim(run: RunDirectory) -> Iterator[None]:
    """Keep other launchers from this run for as long as the block, or this process, lives.

    The kernel gives the lock back however we end. A file system without locks keeps nobody away.
    """
    hint = "then start it again"
    with writable(run, hint):
        descriptor = os.open(run.launcher, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if _lock_soon(descriptor) is False:
            holder = _read(run.launcher)
            who = f"process {holder.pid} on {holder.host}" if holder.is_known else "another launcher"
            raise UsageError(
                f"{who} works on {run.path} already",
                hint=f"wait for it, or end it with ipulaunch cancel {run.path}",
            )
        with writable(run, hint):
            _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def holder_of(run: RunDirectory) -> Optional[Holder]:
    """Who works on a run now; None when nobody does."""
    try:
        with run.launcher.open("r", encoding="utf-8") as file:
            return _read(run.launcher) if _lock(file.fileno(), fcntl.LOCK_SH) is False else None
    except OSError:
        return None


@contextlib.contextmanager
def signed(record: Path) -> Iterator[None]:
    """Leave word of this process in a new file, for has_gone() to read; where that fails, nobody will be told."""
    descriptor = None
    with contextlib.suppress(OSError):
        descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if _lock_soon(descriptor):  # signed and not locked, it would be that of a launcher that has gone
            _sign(descriptor)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def has_gone(record: Path) -> bool:
    """Whether a launcher of this host has signed a record, and lives no more; of other hosts we may not see locks."""
    try:
        with record.open("r", encoding="utf-8") as file:
            return _lock(file.fileno(), fcntl.LOCK_SH) is True and _read(record).is_here
    except OSError:
        return False


def _lock_soon(descriptor: int) -> Optional[bool]:
    """Whether the lock is ours alone; holder_of() and has_gone() may have it for a moment before."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        is_ours = _lock(descriptor, fcntl.LOCK_EX)
        if is_ours is not False or time.monotonic() >= deadline:
            return is_ours
        time.sleep(_LOOK_AGAIN_S)


def _lock(descriptor: int, kind: int) -> Optional[bool]:
    """Whether the lock is ours; None where the file system has none."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _HELD else None
    return True


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps({"host": platform.node(), "pid": os.getpid()}).encode())


def _read(record: Path) -> Holder:
    try:
        found: Dict[str, Any] = parse_json(read_text(record))
        holder = Holder(str(found["host"]), int(found["pid"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return _UNKNOWN
    return holder if holder.host and holder.pid > 1 else _UNKNOWN  # 1 is init, and less are groups
