from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

ENTRY = [sys.executable, "-m", "ipulaunch.data_pipeline"]
MAKE: Dict[str, Any] = {
    "samples": 3,
    "validation_samples": 1,
    "side": 4,
    "samples_per_file": 1,
    "gzip": False,
    "seed": 0,
}


def run(task: str, text: str) -> Tuple[int, List[Dict[str, Any]]]:
    done = subprocess.run([*ENTRY, task], input=text, stdout=subprocess.PIPE, encoding="utf-8", timeout=60, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_a_task_reports_progress_and_its_result(tmp_path: Path) -> None:
    code, events = run("make_cosmoflow", json.dumps({**MAKE, "out": str(tmp_path / "set")}))
    assert code == 0
    assert {event["event"] for event in events} == {"progress", "result"}
    assert events[-1]["event"] == "result"
    assert events[-1]["files"] == 4


@pytest.mark.parametrize(
    ("task", "text", "code", "message"),
    [
        ("nonsense", "{}", 2, "'nonsense' is not a task"),
        ("index", "[]", 2, "the options on stdin are not a JSON object: it is no object"),
        ("index", '{"directory": "/nowhere"}', 5, "/nowhere is not a directory"),
        ("make_cosmoflow", json.dumps({**MAKE, "out": "/proc/nowhere"}), 5, "/proc/nowhere"),
    ],
    ids=["task", "options", "data", "system"],
)
def test_an_error_is_an_event_with_the_exit_code(task: str, text: str, code: int, message: str) -> None:
    returned, events = run(task, text)
    assert (returned, events[-1]["event"], events[-1]["exit_code"]) == (code, "error", code)
    assert message in events[-1]["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_task_quietly_and_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    options = {**MAKE, "samples": 100000, "side": 16, "out": str(tmp_path / "set")}
    with subprocess.Popen(
        [*ENTRY, "make_cosmoflow"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(json.dumps(options).encode())
        process.stdin.close()
        assert b"progress" in process.stdout.readline()
        os.kill(process.pid, number)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []
