"""Which processes of this machine belong to which run, told by their arguments."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Set

_WORKERS = b"ipulaunch.workers"  # among the arguments of the engine and of every instance


class Process(NamedTuple):
    """A living process of ours."""

    parent: int
    words: List[bytes]

    @property
    def run(self) -> Optional[bytes]:
        """The run that it works for, as the engine or an instance."""
        if _WORKERS not in self.words:
            return None
        return next((other for one, other in zip(self.words, self.words[1:]) if one == b"--run-dir"), None)

    @property
    def is_launcher(self) -> bool:
        return any(word == b"ipulaunch.launcher" or word.rpartition(b"/")[2] == b"ipulaunch" for word in self.words)


def runs_here() -> Set[Path]:
    """The runs that have a living process on this machine."""
    return {Path(os.fsdecode(process.run)) for process in _processes().values() if process.run is not None}


def pids_of(run: Path) -> List[int]:
    """The living processes that work for a run: the engine and the instances."""
    meant = os.fsencode(str(run))
    return sorted(pid for pid, process in _processes().items() if process.run == meant)


def launcher_of(run: Path) -> Optional[int]:
    """The launcher of a run: the parent of its engine."""
    meant = os.fsencode(str(run))
    found = _processes()
    parents = {process.parent for process in found.values() if process.run == meant}
    return next((pid for pid in sorted(parents) if pid in found and found[pid].is_launcher), None)


def _processes() -> Dict[int, Process]:
    found: Dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError, IndexError, ValueError):  # it has ended, or is another user's
                if entry.stat().st_uid == os.getuid():
                    # The name in parentheses may hold blanks and parentheses itself.
                    state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                    if state != "Z":
                        words = (entry / "cmdline").read_bytes().split(b"\0")
                        found[int(entry.name)] = Process(int(parent), words)
    return found
