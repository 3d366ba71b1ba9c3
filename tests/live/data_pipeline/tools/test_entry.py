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
    done = subprocess.run(
        [*ENTRY, task], input=text, stdout=subprocess.PIPE, encoding="utf-8", timeout=1800, check=False
    )
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
        ("index", "[]", 2, "the options on stdin are not a JSON object: it is not an object"),
        ("index", '{"directory": "/nowhere"}', 5, "/nowhere is not a directory"),
        ("make_cosmoflow", json.dumps({**MAKE, "out": "/proc/nowhere"}), 5, "/proc/nowhere"),
    ],
    ids=["task", "options", "data", "system"],
)
def test_an_error_is_an_event_with_the_exit_code(task: str, text: str, code: int, message: str) -> None:
    returned, events = run(task, text)
    assert (returned, events[-1]["event"], events[-1]["exit_code"]) == (code, "error", code)
    assert message in events[-1]["message"]


@pytest.fixture
def no_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that imports TensorFlow ends at once."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "tensorflow.py").write_text("raise SystemExit(9)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))


@pytest.mark.usefixtures("no_tensorflow")
@pytest.mark.parametrize("task", ["index", "verify"])
def test_nobody_waits_for_tensorflow_to_hear_that_nothing_is_there(task: str, tmp_path: Path) -> None:
    code, events = run(task, '{"directory": "/nowhere"}')
    assert (code, events[-1]["message"]) == (5, "/nowhere is not a directory")
    (tmp_path / "empty").mkdir()
    code, events = run(task, json.dumps({"directory": str(tmp_path / "empty")}))
    assert (code, events[-1]["message"]) == (5, f"there are no record files in {tmp_path / 'empty'}")


@pytest.mark.usefixtures("no_tensorflow")
@pytest.mark.parametrize("kind", ["cifar10", "mnist"])
def test_small_images_are_recognised_and_verified_without_tensorflow(kind: str, tmp_path: Path) -> None:
    options = {"kind": kind, "samples": 10, "validation_samples": 2, "seed": 0, "out": str(tmp_path / "set")}
    assert run("make_images", json.dumps(options))[0] == 0
    for task in ("index", "verify"):
        code, events = run(task, json.dumps({"directory": str(tmp_path / "set")}))
        assert (code, events[-1]["kind"]) == (0, kind)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("per_file", [1, 500000], ids=["small files", "large files"])
def test_a_signal_ends_a_task_quietly_and_leaves_nothing(number: signal.Signals, per_file: int, tmp_path: Path) -> None:
    options = {**MAKE, "samples": 1000000, "samples_per_file": per_file, "side": 16, "out": str(tmp_path / "set")}
    with subprocess.Popen(
        [*ENTRY, "make_cosmoflow"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(json.dumps(options).encode())
        process.stdin.close()
        assert b"progress" in process.stdout.readline()
        os.kill(process.pid, number)
        assert process.wait(1800) == 130
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []
