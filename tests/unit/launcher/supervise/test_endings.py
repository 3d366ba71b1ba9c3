from __future__ import annotations

from pathlib import Path

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.settings.survival import Survival
from ipulaunch.launcher.supervise.attempts import next_restart
from ipulaunch.launcher.supervise.endings import preemptions, read_endings, record_ending, within_preemptions
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
