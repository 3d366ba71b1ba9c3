from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.configs.job import Job, to_yaml
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.workloads import resolve
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.topology.plan import Plan, to_json

FAKE = Path(__file__).parents[2] / "fakes" / "scheduler.py"
UPDATES = [
    {"event": "training", "time_ns": 1, "epochs": 2, "updates_per_epoch": 4, "left_out": 0},
    {"event": "log", "time_ns": 2, "update": 3, "epoch": 0.75, "epochs": 4, "samples_per_s": 1.0},
]
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
    """The fake schedulers, alone on the PATH: this machine may have real ones."""
    home, commands = tmp_path / "scheduler", tmp_path / "commands"
    home.mkdir()
    commands.mkdir()
    for name in NAMES:
        path = commands / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{FAKE}" {name} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(commands))
    monkeypatch.setenv("FAKE_SCHEDULER", str(home))
    return Scheduler(home)


@pytest.fixture()
def make_run(tmp_path: Path, make_plan: Callable[..., Plan]) -> Callable[..., Path]:
    """A run of two instances with some records."""

    def make(name: str, *, age: int = 0, inside: str = "", job: Dict[str, str] = {}, **records: str) -> Path:  # noqa: B006
        path = tmp_path / "runs" / name
        for place in (path, path / inside):
            place.mkdir(parents=True, exist_ok=True)
            (place / "plan.json").write_text(to_json(make_plan(4, 2)))
        then = 1_790_000_000 - age
        os.utime(path / "plan.json", (then, then))
        run = RunDirectory(path / inside)
        for index in range(2):
            run.instance(index).mkdir()
            run.log(index).write_text(f"first line of {index}\nlast of {index}")
            run.events(index).write_text("".join(json.dumps(record) + "\n" for record in UPDATES))
            for kind, whose in records.items():
                if str(index) in whose:
                    (run.instance(index) / kind.replace("_", ".")).write_text("{}")
        if job:
            fields = {"script": "job.sh", "submitted": "2026-11-16T10:00:00Z", "workload": "cosmoflow", **job}
            record.write(path, Submitted(**fields))
        return path

    return make


@pytest.fixture()
def state_of(ipulaunch: Callable[..., Any]) -> Callable[[str], str]:
    """What `ipulaunch status` says of a run."""

    def ask(name: str) -> str:
        code, out, err = ipulaunch("status", name, "--json")
        assert code == 0, err
        state: str = json.loads(out)["state"]
        return state

    return ask


@pytest.fixture()
def write_job() -> Callable[..., None]:
    """Writes the job of a run, also where its records are."""

    def write(path: Path, inside: str, **survival: Any) -> None:
        settings = resolve("cosmoflow", rehearsal=True).settings
        settings = dataclasses.replace(settings, survival=dataclasses.replace(settings.survival, **survival))
        for place in (path, path / inside):
            (place / "job.yaml").write_text(to_yaml(Job("cosmoflow", "cpu", settings)))

    return write
