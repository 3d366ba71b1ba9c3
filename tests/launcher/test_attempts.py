from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from ipulaunch.configs.job import Job, from_yaml
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.survival import Survival
from ipulaunch.configs.workloads import resolve
from ipulaunch.launcher.attempts import Restart, begin_again, next_restart
from ipulaunch.launcher.stall import StallWatch
from ipulaunch.launcher.verdict import Verdict
from ipulaunch.topology.plan import Plan

JOB = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True).settings)


@pytest.fixture
def plan(solve_for: Callable[..., Any]) -> Plan:
    plan: Plan = solve_for(4, 2).plan
    return plan


@pytest.mark.parametrize(
    ("code", "restarts", "has_checkpoint", "expected"),
    [
        pytest.param(7, 0, True, Restart(1, 3, 2.0), id="first"),
        pytest.param(7, 2, True, Restart(3, 3, 8.0), id="last"),
        pytest.param(7, 3, True, None, id="used up"),
        pytest.param(7, 0, False, None, id="never got anywhere"),
        pytest.param(0, 0, True, None, id="done"),
        pytest.param(5, 0, True, None, id="data"),
        pytest.param(6, 0, True, None, id="settings"),
        pytest.param(75, 0, True, None, id="stopped"),
        pytest.param(130, 0, True, None, id="interrupted"),
    ],
)
def test_what_is_started_again(code: int, restarts: int, has_checkpoint: bool, expected: Optional[Restart]) -> None:
    survival = Survival(max_restarts=3, restart_backoff_s=2.0)
    assert next_restart(Verdict(code, ""), survival, restarts, has_checkpoint) == expected


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


def test_an_attempt_without_a_checkpoint_starts_anew(tmp_path: Path, plan: Plan) -> None:
    assert begin_again(RunDirectory(tmp_path), plan, JOB).settings.training.resume is None


class TestStall:
    @pytest.fixture
    def now(self) -> Any:
        return [0.0]

    @pytest.fixture
    def watch(self, tmp_path: Path, plan: Plan, now: Any) -> StallWatch:
        run = RunDirectory(tmp_path)
        for instance in (0, 1):
            run.instance(instance).mkdir()
            run.heartbeat(instance).touch()
        return StallWatch(run, plan, 10.0, clock=lambda: now[0])

    def test_a_run_that_moves_does_not_hang(self, watch: StallWatch, now: Any) -> None:
        for _ in range(5):
            now[0] += 9.0
            assert watch.verdict() is None
            watch.saw_progress()

    def test_instances_get_the_time_to_dump_their_stacks(self, watch: StallWatch, now: Any) -> None:
        now[0] = 11.0
        assert watch.verdict() is None
        now[0] = 12.5
        assert watch.verdict() == "no progress for 10 s: all instances live, and wait"

    def test_who_is_silent_is_named(self, watch: StallWatch, now: Any) -> None:
        os.utime(watch.run.heartbeat(1), (0, 0))
        now[0] = 60.0
        assert watch.verdict() == "no progress for 10 s: localhost:1 stopped showing signs of life"

    def test_who_never_started_is_named(self, watch: StallWatch, now: Any) -> None:
        watch.run.heartbeat(0).unlink()
        now[0] = 60.0
        verdict = watch.verdict()
        assert verdict is not None and "localhost:0 stopped" in verdict
