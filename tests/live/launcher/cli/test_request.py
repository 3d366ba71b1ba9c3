"""`ipulaunch request` as a user runs it: export, serve, send, measure, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

LIMIT_S = 600.0  # only keeps a test from hanging

pytest.importorskip("grpc", reason="the extra [serving] is not installed")

SMALL = ("cifar10", "--config", "resnet8_test", "--rehearsal", "--engine", "openmpi")


@pytest.fixture()
def run(own_environment: Dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a command in an empty directory, with a temporary directory of its own."""
    started: List[Any] = []
    (tmp_path / "tmp").mkdir()

    def start(*words: Any, **environ: str) -> Any:
        line = [sys.executable, "-m", "ipulaunch.launcher", *map(str, words)]
        values = {**own_environment, "TMPDIR": str(tmp_path / "tmp"), **environ}
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=values, cwd=tmp_path, text=True
        )
        started.append(process)
        return process

    yield start
    for each in started:
        if each.poll() is None:
            each.send_signal(signal.SIGTERM)
        each.communicate(timeout=LIMIT_S)


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path, run: Callable[..., Any]) -> None:
    missing = tmp_path / "without" / "grpc"
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'grpc'\", name='grpc')\n")
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "saved_model.pb").touch()
    process = run("serve", tmp_path / "m", "--own-server", PYTHONPATH=str(missing.parent))
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (4, "")
    lines = err.splitlines()
    assert lines[0] == "error: serving needs grpc, which is not installed"
    assert lines[1] == "hint: pip install 'ipulaunch[serving]'"


@pytest.mark.night
def test_a_measurement_leaves_nothing_and_knows_each_sample(tmp_path: Path, run: Callable[..., Any]) -> None:
    """Left to the night, as it loads TensorFlow in three processes, one after the other."""
    line = ("request", *SMALL, "--port", 0, "--rest-port", 0, "--batch-size", 3, "--num-threads", 4, "--own-server")
    process = run(*line, "--num-images", 20, "--json")
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert (result["server"], result["model"]) == ("own", "resnet8_test")
    assert (result["requests"], result["samples"], result["distinct_samples"]) == (28, 80, 80)
    assert 0 <= result["accuracy"] <= 1
    assert result["samples_are_synthetic"]
    assert "warning: no checkpoint is given: the weights are random" in err
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.night
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)], ids=["Ctrl-C", "TERM"])
def test_a_measurement_that_is_stopped_leaves_nothing(
    number: int, code: int, tmp_path: Path, run: Callable[..., Any]
) -> None:
    """Left to the night, as it loads TensorFlow in several processes."""
    process = run("request", *SMALL, "--port", 0, "--rest-port", 0, "--num-images", 10**6, "--own-server")
    for line in process.stderr:
        if line.startswith("serving resnet8_test with ipulaunch's own server"):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.night
def test_a_server_that_is_killed_ends_the_measurement_with_its_name(tmp_path: Path, run: Callable[..., Any]) -> None:
    """Left to the night, as it loads TensorFlow in several processes."""
    process = run("request", *SMALL, "--port", 0, "--rest-port", 0, "--num-images", 10**6, "--own-server")
    for line in process.stderr:
        if line.startswith("serving resnet8_test with ipulaunch's own server"):
            break
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (server,) = [pid for pid in children if b"serving" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    os.kill(int(server), signal.SIGKILL)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7, err
    assert "error: ipulaunch's own server was ended by SIGKILL" in err
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.night
def test_a_trained_model_classifies_as_its_validation_says(tmp_path: Path, run: Callable[..., Any]) -> None:
    """A run that is exported and served has the accuracy of its own validation. Left to the night: it trains."""
    trained = run(*SMALL, "--num-epochs", 1, "--run-dir", tmp_path / "run", "--validation")
    _, err = trained.communicate(timeout=LIMIT_S)
    assert trained.returncode == 0, err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    server = run("serve", tmp_path / "run", "--port", 0, "--rest-port", 0, "--own-server", "--json")
    ready = next(event for event in map(json.loads, server.stdout) if event["event"] == "ready")
    sent = run(
        *("request", *SMALL, "--server", f"127.0.0.1:{ready['port']}", "--served-name", ready["model"], "--json"),
        *("--num-threads", 1, "--num-images", summary["validation_samples"], "--batch-size", 8),
    )
    out, err = sent.communicate(timeout=LIMIT_S)
    assert sent.returncode == 0, err
    result = json.loads(out)
    assert result["distinct_samples"] == summary["validation_samples"]
    assert result["accuracy"] == summary["metrics"]["val_accuracy"]
