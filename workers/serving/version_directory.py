"""The directory of a version: complete or absent, whatever ends the export."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Iterator

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.exports import half_written_in, refuse_occupied
from ipulaunch.configs.runs.directory import temporary_beside
from ipulaunch.data_pipeline.reported import Report
from ipulaunch.data_pipeline.tools.new_set import locked, temporary_directory


@contextlib.contextmanager
def new_version(directory: Path, version: int, report: Report, *, adds: bool) -> Iterator[Path]:
    """Gives a directory to write to, which becomes the version at the end; a failure leaves nothing of it.

    The launcher learns what is not complete yet: it may have to kill this process.
    """
    refuse_occupied(directory, version, adds=adds)
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    making = temporary_beside(directory / str(version))
    hint = "wait for its end, or give --export-dir another directory"
    busy = UsageError(f"another process is exporting to {directory}", hint=hint)
    with locked(directory, busy) as is_locked:
        for path in half_written_in(directory) if is_locked else []:  # left by processes that were killed
            shutil.rmtree(path)
        with temporary_directory(making, is_parent_new=is_new):
            report({"event": "making", "path": str(directory if is_new else making)})
            yield making
            making.rename(directory / str(version))
