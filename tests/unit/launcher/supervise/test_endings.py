from __future__ import annotations

from pathlib import Path
from typing import Optional

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.settings.sections import Survival
from ipulaunch.launcher.show.display import details
from ipulaunch.launcher.supervise.endings import (
    Restart,
    after_restarts,
    next_restart,
    preemptions,
    read_endings,
    record_ending,
    within_preemptions,
)
from ipulaunch.launcher.supervise.verdict import Verdict

STOPPED = Verdict(75, "stopped after update 8", resume="ipulaunch resume a", was_asked_to_stop=True)


def test_each_attempt_leaves_its_ending(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert read_endings(run) == []
    record_ending(run, Verdict(7, "it broke"))
    (run.attempts / "1").mkdir(parents=True)
    record_ending(run, STOPPED)
    with run.endings.open("a") as file:
        file.write('{"attempt": 3, "exit_co')  # a launcher that was killed in the middle
    assert [(e.attempt, e.exit_code, e.headline) for e in read_endings(run)] == [
        (1, 7, "it broke"),
        (2, 75, "stopped after update 8"),
    ]
    assert preemptions(run) == 1


def test_a_run_that_is_gone_has_nothing_to_note(tmp_path: Path) -> None:
    record_ending(RunDirectory(tmp_path / "gone"), STOPPED)
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    ("before", "code", "said"),
    [
        (0, 75, "stopped after update 8 (preemption 1 of 2)"),
        (1, 75, "stopped after update 8 (preemption 2 of 2)"),
        (2, 7, "stopped after update 8; preempted 3 times, and --max-preemptions is 2"),
    ],
)
def test_budget_of_preemptions(before: int, code: int, said: str, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    record_ending(run, Verdict(7, "a failure does not count"))
    for _ in range(before):
        record_ending(run, STOPPED)
    verdict = within_preemptions(run, STOPPED, Survival(max_preemptions=2))
    assert (verdict.exit_code, verdict.headline) == (code, said)
    assert (verdict.resume, verdict.was_asked_to_stop) == (STOPPED.resume, True)
    assert next_restart(verdict, Survival(max_restarts=3), 0, has_trained=True) is None


def test_other_ends_are_no_preemptions(tmp_path: Path) -> None:
    verdict = Verdict(130, "interrupted")
    assert within_preemptions(RunDirectory(tmp_path), verdict, Survival(max_preemptions=0)) == verdict


@pytest.mark.parametrize(("code", "restarts", "told"), [(7, 2, True), (7, 0, False), (0, 2, False)])
def test_the_last_verdict_tells_of_restarts(code: int, restarts: int, told: bool) -> None:
    verdict = after_restarts(Verdict(code, "it broke", hint="x"), Survival(max_restarts=2), restarts)
    assert details(verdict) == (("restarts: 2 of 2 (--max-restarts)",) if told else ()) + ("hint: x",)


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


def test_a_program_that_asks_to_be_continued_is_called_again_at_once() -> None:
    asks, survival = Verdict(75, "", asks_to_continue=True), Survival(max_restarts=2)
    assert next_restart(asks, survival, 1, True) == Restart(2, 2, 0.0)
    assert next_restart(asks, survival, 2, True) is None


def test_a_program_that_asks_too_often_has_failed(tmp_path: Path) -> None:
    asks, survival = Verdict(75, "", asks_to_continue=True), Survival(max_restarts=2, max_preemptions=0)
    verdict = within_preemptions(RunDirectory(tmp_path), asks, survival)
    assert (verdict.exit_code, next_restart(verdict, survival, 0, True)) == (7, None)


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
