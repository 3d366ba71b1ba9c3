"""Where a run will lie: under the name that the user gives, or under one that no other launch has."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import RUNS, RunDirectory, writable

ELSEWHERE = "or give --run-dir another place"
_MOST = 99  # launches of one second


def new_run_path(name: str, asked: Optional[Path]) -> Path:
    """A path that is free now; a directory that exists is refused, so that no run writes over another."""
    with _possible():
        if asked is None:
            return next(path for path in _candidates(name) if not path.exists())
        if asked.exists():
            what = "directory" if asked.is_dir() else "file"
            hint = "give --run-dir a name that is free, or leave it out"
            raise UsageError(f"there is a {what} {asked} already", hint=hint)
        return asked.absolute()


@contextlib.contextmanager
def run_path(name: str, asked: Optional[Path]) -> Iterator[Path]:
    """The same for a launch that follows. One without a name gets its directory at once, which no other can take.

    Where nothing was put into the directory, as the launch was refused, it is given up.
    """
    if asked is not None:
        yield new_run_path(name, asked)
        return
    with _possible():
        candidates = _candidates(name)
        is_first = not candidates[0].parent.exists()
    path = _taken(candidates)
    try:
        yield path
    finally:
        for directory in (path, path.parent) if is_first else (path,):
            with contextlib.suppress(OSError):  # it is not empty, or gone
                directory.rmdir()


def _taken(candidates: Sequence[Path]) -> Path:
    for path in candidates:
        with writable(RunDirectory(path), ELSEWHERE):
            try:
                with contextlib.suppress(FileExistsError):  # another was faster
                    path.mkdir(mode=0o700, parents=True)
                    return path
            except NotADirectoryError as error:
                raise UsageError(f"the run directory {path} cannot be made: {error.strerror}") from error
    message = f"{candidates[0]} and {len(candidates) - 1} more names are taken"
    raise UsageError(message, hint="give --run-dir a name that is free")


def _candidates(name: str) -> List[Path]:
    first = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    return [Path(RUNS).absolute() / (first if n == 1 else f"{first}-{n}") for n in range(1, _MOST + 1)]


@contextlib.contextmanager
def _possible() -> Iterator[None]:
    """Inside, what the file system refuses is for the user to mend."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"the run directory cannot be made: {error.strerror}") from error
