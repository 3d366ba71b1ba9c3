"""Runs that are asked to stop, and runs that are started again by themselves."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

IN_EPOCH = {"at": "step", "count": 28}
REQUESTS = [
    pytest.param(signal.SIGTERM, 75, "light", id="TERM"),
    pytest.param(signal.SIGUSR1, 75, "light", id="USR1"),
    pytest.param(signal.SIGINT, 130, "light", id="INT"),
    pytest.param(signal.SIGTERM, 75, "real", id="TERM-real"),
    pytest.param(signal.SIGUSR1, 75, "real", id="USR1-real", marks=pytest.mark.night),
    pytest.param(signal.SIGINT, 130, "real", id="INT-real", marks=pytest.mark.night),
]


@pytest.mark.parametrize(("number", "code", "worker"), REQUESTS)
def test_a_run_stops_on_request_with_a_checkpoint_and_continues(
    number: signal.Signals, code: int, worker: str, trial: Any, undisturbed: Any
) -> None:
    """With the real worker for one signal by day: the others differ in nothing that TensorFlow hears of."""
    outcome = trial.disturbed(faults=[{"instance": 1, "do": "ask", "number": int(number), **IN_EPOCH}])
    assert outcome.code == code, outcome.said
    assert "stopped on request after update" in outcome.said and "resume: ipulaunch resume" in outcome.said
    records = [trial.run / f"instance-00{instance}" / "stopped.json" for instance in (0, 1)]
    (message,) = {json.loads(path.read_text())["message"] for path in records}  # at the same update
    assert f"\n{message}\n" in (trial.run / "instance-000" / "log.txt").read_text()
    trial.resume()
    trial.assert_same_end(undisturbed)


@pytest.mark.parametrize("worker", ["light", pytest.param("real", marks=pytest.mark.night)])
def test_a_killed_instance_is_restarted_from_the_newest_checkpoint(worker: str, trial: Any, undisturbed: Any) -> None:
    """By night with the real worker, of which four would be started, each with TensorFlow."""
    fault = {"instance": 1, "do": "kill", **IN_EPOCH}
    outcome = trial.disturbed("--max-restarts", "1", "--set", "survival.restart_backoff_s=0.1", faults=[fault])
    assert outcome.code == 0, outcome.said
    for words in ("localhost:1 failed first", "restart 1 of 1", "resumed after update 24"):
        assert words in outcome.said
    assert (trial.run / "attempts" / "1" / "instance-001" / "log.txt").exists()
    trial.assert_same_end(undisturbed)
