"""Which runs the processes of this machine work for, told by their arguments."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Optional, Set

_WORKERS = b"ipulaunch.workers"  # among the arguments of the engine and of every instance


def runs_here() -> Set[Path]:
    """The runs that have a living engine or instance on this machine, with or without a launcher."""
    found: Set[Path] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                run = _run_of((entry / "cmdline").read_bytes()) if entry.stat().st_uid == os.getuid() else None
                if run is not None:
                    found.add(run)
    return found


def _run_of(arguments: bytes) -> Optional[Path]:
    words = arguments.split(b"\0")
    if _WORKERS not in words:
        return None
    named = (other for one, other in zip(words, words[1:]) if one == b"--run-dir")
    return next((Path(os.fsdecode(name)) for name in named), None)
