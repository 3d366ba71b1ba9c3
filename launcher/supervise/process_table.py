"""The processes of this machine as the kernel lists them, and the runs that they work for."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Set, Tuple

_PROC = Path("/proc")
_WORKERS = "ipulaunch.workers"  # among the arguments of the engine and of every instance


class Process(NamedTuple):
    """A process that lives, or has just ended; what it lacks then is empty."""

    place: Path  # where the kernel shows it
    pid: int
    parent: int
    state: str  # a letter: T is stopped

    @property
    def words(self) -> Tuple[str, ...]:
        """Its command line; threads of the kernel have none."""
        with contextlib.suppress(OSError):
            return tuple(os.fsdecode((self.place / "cmdline").read_bytes()).rstrip("\0").split("\0"))
        return ()

    @property
    def user(self) -> Optional[int]:
        return user_of(self.place)


def all_processes(proc: Path = _PROC) -> Iterator[Process]:
    """Every living process that the kernel shows."""
    with contextlib.suppress(OSError):  # there is no /proc
        for place in proc.iterdir():
            if place.name.isdecimal():
                with contextlib.suppress(OSError, ValueError):  # it has just ended
                    # The name in parentheses may hold blanks, parentheses itself, and bytes that are not text.
                    state, parent = (place / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                    if state != b"Z":
                        yield Process(place, int(place.name), int(parent), state.decode("ascii"))


def user_of(place: Path) -> Optional[int]:
    """The user of a process, by its directory in /proc."""
    with contextlib.suppress(OSError):
        found = re.search(rb"^Uid:\s*(\d+)", (place / "status").read_bytes(), re.MULTILINE)
        return int(found[1]) if found else None
    return None


def runs_here(proc: Path = _PROC) -> Set[Path]:
    """The runs of this user that have a living engine or instance on this machine, with or without a launcher."""
    found = (_run_of(process.words) for process in all_processes(proc) if process.user == os.getuid())
    return {run for run in found if run is not None}


def _run_of(words: Tuple[str, ...]) -> Optional[Path]:
    if _WORKERS not in words:
        return None
    named = (other for one, other in zip(words, words[1:]) if one == "--run-dir")
    return next(map(Path, named), None)
