from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import List

import pytest

FAKE = Path(__file__).parents[2] / "fakes" / "scheduler.py"
NAMES = ("sbatch", "squeue", "sacct", "scancel", "qsub", "qstat", "qdel", "kubectl")


class Scheduler:
    """The fake schedulers: what they are to say, and what they were asked."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def says(self, command: str, *lines: str) -> None:
        (self.home / command).write_text("\n".join(lines))

    @property
    def calls(self) -> List[List[str]]:
        path = self.home / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture()
def no_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any scheduler: the PATH has nothing."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture()
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """The fake schedulers, first on the PATH."""
    home, commands = tmp_path / "scheduler", tmp_path / "commands"
    home.mkdir()
    commands.mkdir()
    for name in NAMES:
        path = commands / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{FAKE}" {name} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(commands), os.environ["PATH"]]))
    monkeypatch.setenv("FAKE_SCHEDULER", str(home))
    return Scheduler(home)
