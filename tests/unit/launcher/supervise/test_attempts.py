from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional

import pytest

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.configs.settings.survival import Survival
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.supervise.attempts import (
    Restart,
    after_restarts,
    begin_again,
    has_checkpoint,
    newest_update,
    next_restart,
)
from ipulaunch.launcher.supervise.endings import attempt_of
from ipulaunch.launcher.supervise.verdict import Verdict
from ipulaunch.topology.planning.plan import Plan

JOB = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True).settings)


@pytest.fixture
def plan(solve_for: Callable[..., Any]) -> Plan:
    plan: Plan = solve_for(4, 2).plan
    return plan


@pytest.mark.parametrize(("code", "restarts", "told"), [(7, 2, True), (7, 0, False), (0, 2, False)])
def test_the_last_verdict_tells_of_restarts(code: int, restarts: int, told: bool) -> None:
    verdict = after_restarts(Verdict(code, "it broke", ("log: x",)), Survival(max_restarts=2), restarts)
    assert verdict.details == (("restarts: 2 of 2 (--max-restarts)",) if told else ()) + ("log: x",)


@pytest.mark.parametrize(
    ("code", "restarts", "has_trained", "expected"),
    [
        pytest.param(7, 0, True, Restart(1, 3, 2.0), id="first"),
        pytest.param(7, 2, True, Restart(3, 3, 2.0), id="last"),
        pytest.param(7, 3, True, None, id="used up"),
        pytest.param(7, 0, False, None, id="never got anywhere"),
        pytest.param(0, 0, True, None, id="done"),
        pytest.param(5, 0, True, None, id="data"),
        pytest.param(6, 0, True, None, id="settings"),
        pytest.param(75, 0, True, None, id="stopped"),
        pytest.param(130, 0, True, None, id="interrupted"),
    ],
)
def test_what_is_started_again(code: int, restarts: int, has_trained: bool, expected: Optional[Restart]) -> None:
    survival = Survival(max_restarts=3, restart_backoff_s=2.0)
    assert next_restart(Verdict(code, ""), survival, restarts, has_trained) == expected


@pytest.mark.parametrize(
    ("backoff_s", "in_vain", "wait_s"),
    [
        (5.0, 0, 5.0),
        (5.0, 1, 10.0),
        (5.0, 6, 320.0),
        (5.0, 7, 600.0),
        (5.0, 2000, 600.0),
        (0.0, 2000, 0.0),
        (3600.0, 0, 3600.0),
        (3600.0, 1, 3600.0),
    ],
)
def test_restarts_that_are_in_vain_wait_longer_but_not_for_ever(backoff_s: float, in_vain: int, wait_s: float) -> None:
    survival = Survival(max_restarts=9999, restart_backoff_s=backoff_s)
    restart = next_restart(Verdict(7, ""), survival, 3000, True, in_vain)
    assert restart == Restart(3001, 9999, wait_s)


def test_what_somebody_asked_to_stop_is_not_started_again() -> None:
    survival = Survival(max_restarts=3)
    assert next_restart(Verdict(7, "no space left", was_asked_to_stop=True), survival, 0, True) is None


@pytest.mark.parametrize(
    ("names", "api", "update"),
    [
        ([], "keras", None),
        (["update-00000004", "update-00000060", ".update-00000075.12"], "keras", 60),
        (["update-x", "update-00000008"], "keras", 8),
        (["model.ckpt-4.index", "model.ckpt-12.index", "model.ckpt-12.meta"], "estimator", 12),
    ],
)
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["in the run", "elsewhere"])
def test_newest_checkpoint(
    names: List[str], api: str, update: Optional[int], is_elsewhere: bool, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    place = tmp_path / "elsewhere" if is_elsewhere else run.checkpoints
    for name in names:
        (place / name).mkdir(parents=True)
    elsewhere = str(place) if is_elsewhere else None
    training = dataclasses.replace(JOB.settings.training, checkpoint_output_dir=elsewhere)
    settings: Any = SimpleNamespace(api=api, training=training, estimator_run=SimpleNamespace(model_dir=elsewhere))
    job = JOB._replace(settings=settings)
    assert newest_update(run, job) == update
    assert has_checkpoint(run, job) == (update is not None)


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
