"""One run of a command: how it ends, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.launcher.bench import one_round
from ipulaunch.launcher.bench.one_round import Ending, run_command
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.supervise.stop_signals import StopSignals

FAKE = Path(__file__).parents[3] / "fakes" / "benchmark.py"
MOST_S = 600.0  # bounds a hang

Run = Callable[..., Ending]


@pytest.fixture()
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(one_round, "GRACE_S", 0.2)
    monkeypatch.setattr(one_round, "LOOK_INTERVAL_S", 0.02)

    def start(behaviour: str, look: Callable[[float], None] = lambda seconds: None, **more: Any) -> Ending:
        settings = {"timeout_s": MOST_S, **more}
        command = Command((sys.executable, "-IS", str(FAKE), behaviour), {"SETTING": "set"})
        with StopSignals() as signals:
            return run_command(
                command,
                os.environ,
                tmp_path,
                tmp_path / "stdout",
                tmp_path / "stderr",
                signals=signals,
                look=look,
                **settings,
            )

    return start


@pytest.mark.parametrize(
    ("behaviour", "outcome", "code", "problem"),
    [
        ("print", "ok", 0, ""),
        ("fail", "failed", 3, "exit code 3"),
        ("crash", "failed", 137, "ended by signal 9"),
    ],
)
def test_a_command_ends_by_itself(
    run: Run, tmp_path: Path, behaviour: str, outcome: str, code: int, problem: str
) -> None:
    ending = run(behaviour)
    assert (ending.outcome, ending.exit_code, ending.problem) == (outcome, code, problem)
    assert (tmp_path / "stdout").read_text() == "rate: 10 samples/sec\nrate: 30 samples/sec\n"
    assert (tmp_path / "stderr").read_text().startswith("loss: 0.5\n")


def test_a_command_has_its_directory_its_variables_and_no_input(run: Run, tmp_path: Path) -> None:
    assert run("environment").outcome == "ok"
    assert f"where: {tmp_path} set ''" in (tmp_path / "stdout").read_text()


def test_a_program_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with StopSignals() as signals:
        ending = run_command(
            Command(("no-such-program",)),
            os.environ,
            tmp_path,
            tmp_path / "stdout",
            tmp_path / "stderr",
            timeout_s=MOST_S,
            signals=signals,
            look=lambda seconds: None,
        )
    assert (ending.outcome, ending.exit_code) == ("failed", 127)
    assert ending.problem == "there is no program no-such-program"


def test_what_outlives_a_command_is_ended(run: Run, lifeline: Any) -> None:
    assert run("leave").outcome == "ok"
    assert lifeline.has_ended()


@pytest.mark.core
def test_a_deaf_command_and_its_children_end_when_their_time_is_over(run: Run, lifeline: Any) -> None:
    ending = run("deaf", timeout_s=3.0)
    assert (ending.outcome, ending.exit_code) == ("timeout", 137)
    assert ending.problem == "not done after 3 s"
    assert lifeline.has_ended()


@pytest.mark.parametrize("behaviour", ["hang", "deaf"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command(run: Run, lifeline: Any, behaviour: str, number: signal.Signals) -> None:
    sent = []

    def look(seconds: float) -> None:
        if not sent and lifeline.pids():
            sent.append(number)
            os.kill(os.getpid(), number)

    ending = run(behaviour, look)
    assert ending.outcome == "interrupted"
    assert ending.exit_code == (137 if behaviour == "deaf" else 130)
    assert lifeline.has_ended()
