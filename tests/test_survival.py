"""Runs that are stopped, killed or hung: real workers over real Open MPI, and the undisturbed run as the oracle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

pytestmark = pytest.mark.mpi

IPULAUNCH = [sys.executable, "-m", "ipulaunch.launcher"]
# 600 updates of a few milliseconds, with a checkpoint every 60.
JOB = [
    "cosmoflow",
    "--pod",
    "4",
    "--num-instances",
    "2",
    "--oversubscribe",
    "--engine",
    "openmpi",
    "--num-epochs",
    "100",
]
JOB += ["--logs-per-epoch", "1/10", "--ckpts-per-epoch", "1/10"]
JOB += [
    word
    for text in ("data.side=4", "data.n_train=24", "data.n_valid=5", "model.n_conv_layers=1", "model.conv_size=1")
    for word in ("--set", text)
]
Start = Callable[..., "subprocess.Popen[str]"]


def events(run: Path, instance: int) -> List[Dict[str, Any]]:
    path = run / f"instance-{instance:03}" / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def state(run: Path) -> Dict[str, Any]:
    with np.load(run / "checkpoints" / "update-00000600" / "state.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def assert_same_end(run: Path, undisturbed: Path) -> None:
    found, expected = state(run), state(undisturbed)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    done = subprocess.run(
        [*IPULAUNCH, *JOB, "--run-dir", str(run)], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return run


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts the job, and returns when it has written its first checkpoint."""

    def start(*options: str) -> subprocess.Popen[str]:
        run = tmp_path / "run"
        command = [*IPULAUNCH, *JOB, *options, "--run-dir", str(run)]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while not any(event["event"] == "checkpoint" for event in events(run, 0)):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.01)
        return process

    return start


def resume(tmp_path: Path) -> None:
    done = subprocess.run(
        [*IPULAUNCH, "resume", "run"], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)], ids=lambda value: str(value)
)
def test_a_run_stops_on_request_with_a_checkpoint_and_continues(
    number: signal.Signals, code: int, start: Start, undisturbed: Path, tmp_path: Path
) -> None:
    process = start()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "stopped on request after update" in said and "resume: ipulaunch resume" in said
    messages = {
        json.loads((tmp_path / "run" / f"instance-00{i}" / "stopped.json").read_text())["message"] for i in (0, 1)
    }
    assert len(messages) == 1  # at the same update
    resume(tmp_path)
    assert_same_end(tmp_path / "run", undisturbed)


def test_a_killed_instance_is_restarted_from_the_newest_checkpoint(
    start: Start, undisturbed: Path, tmp_path: Path
) -> None:
    process = start("--max-restarts", "1", "--set", "survival.restart_backoff_s=0.1")
    os.kill(events(tmp_path / "run", 1)[0]["pid"], signal.SIGKILL)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "localhost:1 failed first" in said and "restart 1 of 1" in said and "resumed after update" in said
    assert (tmp_path / "run" / "attempts" / "1" / "instance-001" / "log.txt").exists()
    assert_same_end(tmp_path / "run", undisturbed)


def test_a_run_that_hangs_names_who_was_silent_and_leaves_the_stacks(
    start: Start, undisturbed: Path, tmp_path: Path
) -> None:
    process = start("--stall-timeout", "6")
    os.kill(events(tmp_path / "run", 1)[0]["pid"], signal.SIGSTOP)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 7, said
    assert "no progress for 6 s: localhost:1 stopped showing signs of life" in said
    assert "most recent call first" in (tmp_path / "run" / "instance-000" / "log.txt").read_text()
    resume(tmp_path)
    assert_same_end(tmp_path / "run", undisturbed)
