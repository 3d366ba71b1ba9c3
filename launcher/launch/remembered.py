"""Runs in places of their own: the user's state directory remembers them, so that they are listed everywhere."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import List, Mapping

from ipulaunch.configs.runs.directory import RunDirectory, is_file, write_whole
from ipulaunch.configs.runs.untrusted import read_text


def remember(path: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Remember a run; without a state directory that can be written it is only found by its path."""
    with contextlib.suppress(OSError, RuntimeError):
        directory = _directory(environ)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(directory / hashlib.sha256(os.fsencode(path)).hexdigest()[:32], f"{path}\n")


def remembered_runs(environ: Mapping[str, str] = os.environ) -> List[Path]:
    """The remembered runs that are still there; those whose directory has gone are forgotten."""
    found: List[Path] = []
    with contextlib.suppress(OSError, RuntimeError):
        for entry in sorted(_directory(environ).iterdir()):
            with contextlib.suppress(OSError):
                path = Path(read_text(entry).rstrip("\n"))
                if is_file(RunDirectory(path).plan):
                    found.append(path)
                elif not path.exists():
                    entry.unlink()
    return found


def _directory(environ: Mapping[str, str]) -> Path:
    """Where each run has a file of its own, so that launches that start together do not write over each other.

    Raises RuntimeError for a user without a home.
    """
    given = Path(environ.get("XDG_STATE_HOME", ""))
    state = given if given.is_absolute() else Path("~/.local/state").expanduser()
    return state / "ipulaunch" / "runs"
