from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.configs.job import Job, to_yaml
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.workloads import resolve
from ipulaunch.launcher import resuming
from ipulaunch.topology.plan import Plan, from_json, to_json

JOB = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True).settings)
Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, solve_for: Callable[..., Any]) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    plan: Plan = solve_for(4, 2).plan
    for placement in plan.placements:
        run.instance(placement.instance).mkdir(parents=True)
    run.plan.write_text(to_json(plan))
    run.job.write_text(to_yaml(JOB))
    return run


def test_a_run_that_is_done_is_left_alone(run: RunDirectory, ipulaunch: Run) -> None:
    for instance in (0, 1):
        run.done(instance).touch()
    code, out, err = ipulaunch("resume", "run")
    assert (code, out) == (0, "") and "run is done: there is nothing to resume" in err
    assert not run.attempts.exists()


@pytest.mark.parametrize("name", ["plan.json", "job.yaml"])
def test_what_is_no_run_is_refused(run: RunDirectory, name: str, ipulaunch: Run) -> None:
    (run.path / name).unlink()
    code, _, err = ipulaunch("resume", "run")
    assert code == 2 and "is not a run that can be resumed" in err


def test_a_plan_that_was_changed_is_refused(run: RunDirectory, ipulaunch: Run) -> None:
    run.plan.write_text('{"format": 1, "placements": "__import__(\'os\')"}')
    code, _, err = ipulaunch("resume", "run")
    assert code == 3 and "not a plan" in err


def test_a_run_keeps_its_plan_unless_hosts_or_instances_are_given(
    run: RunDirectory, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def attend(launch: Any, directory: RunDirectory, display: Any) -> int:
        started.append(launch)
        return 0

    monkeypatch.setattr(resuming, "attend", attend)
    monkeypatch.setattr(resuming, "require", lambda engine: None)
    before = from_json(run.plan.read_text())
    assert ipulaunch("resume", "run")[0] == 0
    assert started[0].solution.plan == before
    assert ipulaunch("resume", "run", "--num-instances", "4", "--host-layout", "1x4")[0] == 0
    plan = started[1].solution.plan
    assert (plan.instances, plan.replicas, plan.batch) == (4, before.replicas, before.batch)
    assert from_json(run.plan.read_text()) == plan
    assert started[1].command.argv[-2:] == ("--run-dir", str(run.path))
