"""The newest run of the same job tells how long it takes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.runs.expected_duration import expected_duration
from ipulaunch.topology.planning.plan import Plan, to_json


def job_of(*texts: str, workload: str = "mnist", backend: str = "cpu") -> Job:
    overrides = [assignment(text, "--set") for text in ("training.num_epochs=4", *texts)]
    return Job(workload, backend, resolve(workload, rehearsal=True, overrides=overrides).settings)


@pytest.fixture()
def ran(tmp_path: Path, make_plan: Callable[..., Plan]) -> Callable[..., RunDirectory]:
    """Makes a run of four epochs that took 60 s, 40 of them for the training and its validation."""

    def make(name: str, job: Job, summary: Any = None, *, at: float = 1000.0, instances: int = 2) -> RunDirectory:
        run = RunDirectory(tmp_path / name)
        run.path.mkdir()
        run.plan.write_text(to_json(make_plan(4, instances)))
        run.job.write_text(to_yaml(job))
        run.summary.write_text(json.dumps(summary or {"train_s": 30.0, "time_to_train_s": 40.0}))
        os.utime(run.plan, (at, at))
        os.utime(run.summary, (at + 60.0, at + 60.0))
        return run

    return make


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({}, ["about 60 s: mine took 60 s"]),
        ({"training.num_epochs": 8}, ["about 2 min: mine took 60 s for 4 epochs"]),  # 60 + 4 x 10 s
        ({"training.num_epochs": 2}, ["about 40 s: mine took 60 s for 4 epochs"]),
        ({"training.seed": 5, "logging.mlperf": "true"}, ["about 60 s: mine took 60 s"]),
        ({"data.n_train": 7}, []),
        ({"model.dropout": 0.1}, []),
        ({"training.resume": "other"}, []),
        ({"training.training": "false"}, []),
    ],
    ids=str,
)
def test_the_same_job_takes_as_long(
    now: Dict[str, Any], expected: Any, ran: Any, tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    ran("mine", job_of())
    job = job_of(*(f"{key}={value}" for key, value in now.items()))
    assert [fact.text for fact in expected_duration(job, make_plan(4, 2), tmp_path)] == expected


def test_the_newest_tells(ran: Any, tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    ran("old", job_of())
    ran("new", job_of(), at=5000.0)
    ran("newest, of another network", job_of("model.dropout=0.1"), at=9000.0)
    ran("newest, on one instance", job_of(), at=9001.0, instances=1)
    ran("newest, on IPUs", job_of(backend="ipu"), at=9002.0)
    ran("newest, not done", job_of(), {"metrics": {}}, at=9003.0)
    ran("newest, restarted", job_of(), at=9004.0).attempts.mkdir()
    (fact,) = expected_duration(job_of(), make_plan(4, 2), tmp_path)
    assert (fact.name, fact.text) == ("duration", "about 60 s: new took 60 s")


def test_without_runs_nothing_is_told(tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    assert expected_duration(job_of(), make_plan(4, 2), tmp_path / "none") == []


def test_on_ipus_the_duration_tells_the_energy(ran: Any, tmp_path: Path, make_plan: Callable[..., Plan]) -> None:
    job = job_of(backend="ipu")
    ran("mine", job)
    duration, energy = expected_duration(job, make_plan(4, 2), tmp_path)
    assert (duration.text, energy.name, energy.in_plan_only) == ("about 60 s: mine took 60 s", "energy", True)
    assert energy.text.startswith("0.0667 IPU-hours, about 0.025 kWh (estimate: 1 x 1.5 kW")
