"""Files that a killed mpirun or launcher leaves: a session, and the memory that instances share."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, Set

from ipulaunch.launcher.supervise.claim import has_gone, signed

_PREFIX, _OWNER = "ipulaunch-", "session.json"
_SESSIONS = "PRTE_MCA_prte_local_tmpdir_base"
_SEGMENT = "/dev/shm/sm_segment."  # as Open MPI 5 names them


@contextlib.contextmanager
def own_session(environ: Mapping[str, str], *, with_files: bool = False) -> Iterator[Dict[str, str]]:
    """The variables that give an mpirun on this host a new place for its session, which is removed in the end.

    On request also for the temporary files of its instances: TensorFlow leaves dozens where these do not end by
    themselves.

    Open MPI 5 names sessions after the number of their process, in one place for all. One that was killed leaves its
    session there, and the next that gets the same number would not start: "The PMIx server's listener thread failed to
    start". In a container numbers are small, and come again soon.

    A launcher that was killed leaves the place itself: the next one removes it.
    """
    base = place_of_sessions(environ)
    for left in left_sessions(base):
        shutil.rmtree(left, ignore_errors=True)
    try:
        place = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    except OSError:  # mpirun says itself where it cannot write
        yield {}
        return
    try:
        with signed(Path(place, _OWNER)):
            yield {_SESSIONS: place, **({"TMPDIR": place} if with_files else {})}
    finally:
        shutil.rmtree(place, ignore_errors=True)


def place_of_sessions(environ: Mapping[str, str]) -> Path:
    """Where launchers make a place for a session."""
    return Path(next((environ[name] for name in ("TMPDIR", "TEMP", "TMP") if environ.get(name)), "/tmp"))


def left_sessions(base: Path) -> List[Path]:
    """Places for sessions that launchers of this user have left on this host."""
    found = []
    for path in sorted(base.glob(f"{_PREFIX}*")):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.getuid() and not path.is_symlink() and has_gone(path / _OWNER):
                found.append(path)
    return found


def segments_of(pid: int) -> Set[Path]:
    """The memory that a process shares with the other instances on its host, 16 MiB of each."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {Path(name) for name in (line.split(maxsplit=5)[-1] for line in lines) if name.startswith(_SEGMENT)}


def remove_segments(segments: Iterable[Path]) -> None:
    """Remove the segments of processes that have ended, where these could not do so themselves."""
    for path in segments:
        with contextlib.suppress(OSError):
            path.unlink()
