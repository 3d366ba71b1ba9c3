"""What is served: a directory of versions, or a run, whose newest checkpoint is exported first."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Sequence

from ipulaunch.configs.errors import INTERRUPTED, DataError, UsageError
from ipulaunch.configs.exports import SAVED_MODEL, read_export, servable_versions
from ipulaunch.launcher.supervise.processes import die_with_parent

_END_S = 15.0


class Served(NamedTuple):
    """A directory of versions, and the name to serve it under."""

    base: Path
    name: str


class ExportFailed(Exception):
    """An export that has failed, and has said why on stderr."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def served_directory(base: Path, name: Optional[str]) -> Served:
    """A directory of versions, as it was exported."""
    if (base / SAVED_MODEL).is_file():
        above = base.parent if base.name.isdigit() else "DIRECTORY, with the model in DIRECTORY/1"
        raise UsageError(
            f"{base} is one version of a model, and a server follows the directory of all versions",
            hint=f"ipulaunch serve {above}",
        )
    found = servable_versions(base)
    if not found:
        inside = [path for path in sorted(base.iterdir()) if path.is_dir() and servable_versions(path)]
        writing = "ipulaunch export WORKLOAD --export-dir D writes one, as D/1"
        hint = f"ipulaunch serve {inside[0]}" if inside else writing
        raise DataError(
            f"{base} has no version of a model: no directory with a number for a name and {SAVED_MODEL} in it",
            hint=hint,
        )
    return Served(base.absolute(), name or _recorded_name(found[-1][1]) or base.absolute().name)


def _recorded_name(version: Path) -> str:
    """The name in the record of an export; models of others have none."""
    try:
        return read_export(version).name
    except DataError:
        return ""


@contextlib.contextmanager
def exported(words: Sequence[str], name: Optional[str] = None) -> Iterator[Served]:
    """What `ipulaunch export` makes of these words, in a directory that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="ipulaunch-serving-") as directory:
        base = Path(directory, "model")
        line = [sys.executable, "-m", "ipulaunch.launcher", "export", *words]
        process = subprocess.Popen(
            [*line, "--export-dir", str(base), "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            code = process.wait()
        except BaseException:
            _interrupt(process)
            raise
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code:
            raise ExportFailed(code)
        yield served_directory(base, name)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """End an export so that it leaves nothing half-written."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
