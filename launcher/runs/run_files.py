"""The files of a run that its launcher writes before anything starts, and reads when everything has ended."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Dict

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import RunDirectory, writable, write_whole
from ipulaunch.configs.runs.job import to_yaml
from ipulaunch.configs.runs.secrets import secret_values
from ipulaunch.configs.runs.untrusted import parse_json, read_text
from ipulaunch.launcher.launch import launch_record
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.launch.redaction import redacted
from ipulaunch.launcher.runs.run_paths import ELSEWHERE
from ipulaunch.launcher.supervise.attempts import make_instances
from ipulaunch.topology.planning.plan import to_json


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
        write_whole(run.asked, launch_record.to_json(launch.options))
    write_whole(run.command, redacted(launch.command, secret_values(os.environ)).shell() + "\n")


def read_summary(run: RunDirectory) -> Dict[str, Any]:
    """What a run has left as its summary; empty where it has left none."""
    try:
        summary = parse_json(read_text(run.summary))
    except (OSError, ValueError):
        return {}
    return summary if isinstance(summary, dict) else {}
