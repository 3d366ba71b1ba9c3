from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.supervise.endings import attempt_of, begin_again
from ipulaunch.topology.planning.plan import Plan

JOB = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True).settings)


@pytest.fixture
def plan(solve_for: Callable[..., Any]) -> Plan:
    plan: Plan = solve_for(4, 2).plan
    return plan


def test_another_attempt_keeps_what_the_earlier_ones_left(tmp_path: Path, plan: Plan) -> None:
    run = RunDirectory(tmp_path)
    for number in (1, 2):
        for instance in (0, 1):
            run.instance(instance).mkdir(exist_ok=True)
            run.error(instance).write_text(f"attempt {number}")
        run.stop.touch()
        (run.checkpoints / "update-00000004").mkdir(parents=True, exist_ok=True)
        again = begin_again(run, plan, JOB)
        assert again.settings.training.resume == str(tmp_path)
        assert from_yaml(run.job.read_text(), "job.yaml") == again
        assert not run.stop.exists() and not run.error(0).exists() and run.log(1).read_bytes() == b""
        assert (run.attempts / str(number) / "instance-001" / "error.json").read_text() == f"attempt {number}"


def test_attempts_that_were_removed_are_in_nobodys_way(tmp_path: Path, plan: Plan) -> None:
    """Somebody who needs the room removes the older ones."""
    run = RunDirectory(tmp_path)
    (run.attempts / "2" / "instance-000").mkdir(parents=True)
    (run.attempts / "notes").touch()
    run.instance(0).mkdir()
    run.error(0).write_text("attempt 3")
    assert attempt_of(run) == 3
    begin_again(run, plan, JOB)
    assert (run.attempts / "3" / "instance-000" / "error.json").read_text() == "attempt 3"
    assert attempt_of(run) == 4


def test_an_attempt_without_a_checkpoint_starts_anew(tmp_path: Path, plan: Plan) -> None:
    assert begin_again(RunDirectory(tmp_path), plan, JOB).settings.training.resume is None


def test_a_directory_that_cannot_be_written_is_not_ready(tmp_path: Path, plan: Plan) -> None:
    run = RunDirectory(tmp_path)
    run.attempts.write_text("a file is in the way")
    with pytest.raises(NotReadyError, match="cannot be written: Not a directory") as error:
        begin_again(run, plan, JOB)
    assert "ipulaunch resume" in error.value.hint
