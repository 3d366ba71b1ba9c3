"""Runs that are asked to stop, and runs that are started again by themselves."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

SOON_S = 120.0  # on a machine that may be busy


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)], ids=["TERM", "USR1", "INT"]
)
def test_a_run_stops_on_request_with_a_checkpoint_and_continues(
    number: signal.Signals, code: int, trial: Any, undisturbed: Any
) -> None:
    outcome = trial.disturbed(faults=[{"instance": 1, "at": "step", "count": 75, "do": "ask", "number": int(number)}])
    assert outcome.code == code, outcome.said
    assert "stopped on request after update" in outcome.said and "resume: ipulaunch resume" in outcome.said
    assert outcome.seconds < SOON_S
    records = [trial.run / f"instance-00{instance}" / "stopped.json" for instance in (0, 1)]
    (message,) = {json.loads(path.read_text())["message"] for path in records}  # at the same update
    assert f"\n{message}\n" in (trial.run / "instance-000" / "log.txt").read_text()
    trial.resume()
    trial.assert_same_end(undisturbed)


def test_a_killed_instance_is_restarted_from_the_newest_checkpoint(trial: Any, undisturbed: Any) -> None:
    fault = {"instance": 1, "at": "step", "count": 75, "do": "kill"}
    outcome = trial.disturbed("--max-restarts", "1", "--set", "survival.restart_backoff_s=0.1", faults=[fault])
    assert outcome.code == 0, outcome.said
    for words in ("localhost:1 failed first", "restart 1 of 1", "resumed after update 60"):
        assert words in outcome.said
    assert (trial.run / "attempts" / "1" / "instance-001" / "log.txt").exists()
    trial.assert_same_end(undisturbed)
