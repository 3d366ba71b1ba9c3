"""The directory of a run: where it lies, what its launcher writes before anything starts, and reads at the end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import RUNS, RunDirectory, writable, write_whole
from ipulaunch.configs.runs.job import to_yaml
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.launcher.launch import launch_record, program_record
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.launch.redaction import redacted
from ipulaunch.launcher.supervise.endings import make_instances
from ipulaunch.topology.planning.plan import to_json

ELSEWHERE = "or give --run-dir another place"
_MOST = 99  # launches of one second


def new_run_path(name: str, given: Optional[Path]) -> Path:
    """A path that is free now; a directory that exists is refused, so that no run writes over another."""
    with _possible():
        if given is None:
            return next(path for path in _candidates(name) if not path.exists())
        if given.exists():
            what = "directory" if given.is_dir() else "file"
            hint = "give --run-dir a name that is free, or leave it out"
            raise UsageError(f"there is a {what} {given} already", hint=hint)
        return given.absolute()


@contextlib.contextmanager
def run_path(name: str, given: Optional[Path]) -> Iterator[Path]:
    """The same for a launch that follows. One without a name gets its directory at once, which no other can take.

    Where nothing was put into the directory, as the launch was refused, it is given up.
    """
    if given is not None:
        yield new_run_path(name, given)
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


def make_run(launch: Launch, path: Path, is_made: bool) -> RunDirectory:
    """Make the directory of a run, or use an empty one that is there, and write down what was decided."""
    run = RunDirectory(path)
    with writable(run, ELSEWHERE):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=is_made)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"the run directory {path} cannot be made: {error.strerror}") from error
        try:
            write_decided(launch, run)
            make_instances(run, launch.solution.plan)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)  # the name is free for the next try
            raise
    return run


def write_decided(launch: Launch, run: RunDirectory) -> None:
    """Write down what was decided and what will be started."""
    write_whole(run.plan, to_json(launch.solution.plan))
    if launch.job is not None:
        write_whole(run.job, to_yaml(launch.job))
    if launch.origins:
        write_whole(run.origins, json.dumps(launch.origins, indent=1) + "\n")
    if launch.program is not None:
        write_whole(run.program, program_record.to_json(launch.program, launch.engine.backend))
    write_whole(run.launch_options, launch_record.to_json(launch.options))
    write_whole(run.command, redacted(launch.command, secret_values(os.environ)).shell() + "\n")


def read_summary(run: RunDirectory) -> Dict[str, Any]:
    """What a run has left as its summary; empty where it has left none."""
    try:
        summary = parse_json(read_text(run.summary))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}
