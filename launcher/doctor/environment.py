"""The machine that the doctor examines: this one, or one that a test makes up."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Mapping, NamedTuple, Optional, Sequence

from ipulaunch.launcher.engines import discovery

_MOST_OUTPUT = 1 << 20  # bytes to read of a command's output
_END_S = 2.0  # for the kernel to end a killed process


class Output(NamedTuple):
    """What a command said, and how it ended."""

    code: Optional[int]  # None: it did not start, or did not end in time
    out: str = ""
    err: str = ""

    @property
    def last_line(self) -> str:
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else ""


class Space(NamedTuple):
    """The space left on a file system."""

    size: int
    free: int
    files: Optional[int]  # that can still be made; None where the file system does not count them


def _run(argv: Sequence[str], timeout_s: float, text: str = "") -> Output:
    """Run a command for a limited time. Its output goes to files: a process left behind would hold a pipe open."""
    try:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(text.encode())
            given.seek(0)
            code = _wait(subprocess.Popen(list(argv), stdin=given, stdout=out, stderr=err), timeout_s)
            said = _read(err) if code is not None else f"no answer within {timeout_s:.0f} s"
            return Output(code, _read(out), said)
    except (OSError, ValueError) as error:  # ValueError: a zero byte among the words
        return Output(None, "", f"does not start: {getattr(error, 'strerror', '') or error}")


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> Optional[int]:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        return None


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MOST_OUTPUT).decode("utf-8", "replace")


def _find(name: str) -> Optional[str]:
    """A program as the launcher would find it."""
    return discovery.find_poprun() if name == "poprun" else shutil.which(name)


def _reach(host: str, port: int, timeout_s: float) -> str:
    try:
        socket.create_connection((host, port), timeout_s).close()
    except (OSError, UnicodeError) as error:
        return str(error) or type(error).__name__
    return ""


def _talk_to_self() -> str:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), 2).close()
    except OSError as error:
        return str(error)
    return ""


def _space(path: Path) -> Space:
    found = os.statvfs(path)
    files = found.f_favail if found.f_files else None
    return Space(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail, files)


@dataclass(frozen=True)
class Environment:
    """A machine as the doctor sees it. Nothing in here raises, except space() and open_mpi()."""

    environ: Mapping[str, str]
    directory: Path  # where the user is
    root: Path = Path("/")
    run: Callable[..., Output] = _run  # (words, timeout_s, text for its stdin)
    find: Callable[[str], Optional[str]] = _find  # a program on the PATH
    open_mpi: Callable[[], discovery.Mpirun] = discovery.open_mpi
    reach: Callable[[str, int, float], str] = _reach  # why a port cannot be reached, "" if it can
    talk_to_self: Callable[[], str] = _talk_to_self  # why a port of our own cannot be reached, "" if it can
    space: Callable[[Path], Space] = _space
    clock: Callable[[], float] = time.time

    def read(self, path: str) -> str:
        """A kernel file below the root; empty if there is none."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def this_machine() -> Environment:
    """The machine we run on, as it is now."""
    return Environment(dict(os.environ), Path.cwd())
