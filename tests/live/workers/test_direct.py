"""`--engine direct`: one process with all the replicas, supervised like the others, with the stand-in as the SDK."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import pytest

from ipulaunch.launcher.supervise import processes

IPULAUNCH = [sys.executable, "-m", "ipulaunch.launcher"]
SDK = "/opt/poplar_sdk-ubuntu_20_04-3.4.0+1"
Start = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture()
def start(tmp_path: Path, sdk_environment: Any) -> Start:
    """Runs a command where the stand-in is enabled as the SDK."""
    environ: Dict[str, str] = {**sdk_environment("3.4"), "POPLAR_SDK_ENABLED": SDK}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=1800, check=False
        )

    return run


def assert_trained_as(run: Path, expected: Path, read_training: Any) -> None:
    found, wanted = read_training(run), read_training(expected)
    assert len(found.state) == len(wanted.state)
    for mine, theirs in zip(found.state, wanted.state):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.core
def test_a_launch_and_its_pasted_line_train_all_replicas_in_one_process(
    start: Start, tiny_options: List[str], read_training: Any, one_and_many: Path, tmp_path: Path
) -> None:
    words = [*IPULAUNCH, "cosmoflow", "--pod", "4", "--engine", "direct", *tiny_options]
    done = start(*words, "--run-dir", "run")
    assert done.returncode == 0, done.stderr
    assert "cosmoflow on pod4: one process, without poprun" in done.stderr
    run, of_one_instance = tmp_path / "run", one_and_many / "tiny-of-4-replicas-1"
    assert_trained_as(run, of_one_instance, read_training)
    assert "epoch 2/2" in (run / "instance-000" / "log.txt").read_text()
    assert (run / "engine.txt").read_text() == ""
    assert json.loads((run / "asked.json").read_text())["engine"] == "direct"
    again = start(*IPULAUNCH, "resume", "run")
    assert (again.returncode, again.stderr) == (0, f"{run} is done: there is nothing to resume\n")

    line = start(*words, "--dry-run").stdout
    assert shlex.split(line)[:2] == [sys.executable, "-m"]
    pasted = start("sh", "-c", line)
    assert pasted.returncode == 0, pasted.stderr
    (made,) = (tmp_path / "runs").iterdir()
    assert_trained_as(made, of_one_instance, read_training)
    plan = json.loads((made / "plan.json").read_text())
    assert (plan["replicas"], len(plan["placements"])) == (4, 1)


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        pytest.param("echo boom; exit 3", 7, "localhost:0 failed first: it ended with exit code 3", id="exit"),
        pytest.param("echo boom; kill -9 $$", 7, "localhost:0 failed first: it was ended by signal 9", id="signal"),
        pytest.param("echo boom", 7, "localhost:0 ended without its done.json", id="no-record"),
    ],
)
def test_how_the_process_ends_is_how_the_instance_ends(
    script: str, code: int, said: str, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "python").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "python").chmod(0o755)
    words = ["mnist", "--engine", "direct", "--python", "./python", "--synthetic-data", "cpu", "--run-dir", "run"]
    done = start(*IPULAUNCH, *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr and "| boom" in done.stderr
    assert (tmp_path / "run" / "instance-000" / "log.txt").read_text() == "boom\n"


@pytest.mark.parametrize(
    ("start_as", "number"),
    [pytest.param(processes._become_engine, 9, id="launcher"), pytest.param(None, 0, id="by-hand")],
)
def test_an_instance_ends_with_the_launcher_that_started_it(start_as: Optional[Any], number: int) -> None:
    program = (
        "import ctypes; from ipulaunch.workers.lifecycle.lifetime import end_with_parent; end_with_parent();"
        " asked = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(asked), 0, 0, 0); print(asked.value)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environ, preexec_fn=start_as, capture_output=True, text=True, check=True)
    assert int(done.stdout) == number
