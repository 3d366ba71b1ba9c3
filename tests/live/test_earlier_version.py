"""Runs that version 0.1.0 has left: they can be looked at, audited, validated and resumed.

Version 0.1.0 made tests/golden/runs-0.1.0, which is never made again: CosmoFlow on synthetic volumes, done, failed and
stopped after update 33 of 48; MNIST on files, stopped after its last update and before its validation.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.trainings import LONGEST_S

RUNS = Path(__file__).parents[1] / "golden" / "runs-0.1.0"
THERE = "/srv/ipulaunch"  # where they were made


@pytest.fixture()
def runs(tmp_path: Path) -> Path:
    """A copy of the runs, made by a launcher of this host."""
    found = shutil.copytree(RUNS, tmp_path / "runs")
    for name in ("job.yaml", "command.txt", "launcher.json"):
        for path in found.glob(f"*/{name}"):
            text = path.read_text().replace(THERE, str(tmp_path))
            path.write_text(text.replace('"host": "vm"', f'"host": {json.dumps(platform.node())}'))
    return found


def ipulaunch(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ipulaunch.launcher", *words], cwd=cwd, env=os.environ, capture_output=True,
        encoding="utf-8", timeout=LONGEST_S, check=False,
    )  # fmt: skip


def test_runs_are_listed_with_their_ends(runs: Path) -> None:
    listed = ipulaunch("ps", "--json", cwd=runs.parent)
    assert listed.returncode == 0, listed.stderr
    states = {row["name"]: (row["workload"], row["state"]) for row in json.loads(listed.stdout)}
    assert states == {
        "done": ("cosmoflow", "done"),
        "failed": ("cosmoflow", "failed"),
        "stopped": ("cosmoflow", "stopped"),
        "images-stopped": ("mnist", "stopped"),
    }
    status = ipulaunch("status", "failed", cwd=runs.parent)
    assert "the loss is not finite any more after update 2" in status.stdout
    assert "training: 3 epochs of 16 weight updates" in ipulaunch("logs", "stopped", cwd=runs.parent).stdout


def test_a_run_can_be_audited(runs: Path) -> None:
    audit = ipulaunch("data", "audit", "runs/done", cwd=runs.parent)
    assert (audit.returncode, audit.stderr) == (0, "")


def test_a_run_can_be_resumed(runs: Path) -> None:
    resumed = ipulaunch("resume", "stopped", cwd=runs.parent)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed after update 33" in resumed.stderr
    summary = json.loads((runs / "stopped" / "summary.json").read_text())
    assert (summary["updates"], summary["checkpoint"]) == (48, "checkpoints/update-00000048")
    audit = ipulaunch("data", "audit", "runs/stopped", cwd=runs.parent)
    assert audit.returncode == 0, audit.stderr


def test_a_run_on_files_can_be_resumed(runs: Path) -> None:
    samples = ("--samples", "64", "--validation-samples", "16")
    made = ipulaunch("data", "make", "mnist", "--out", "images", *samples, cwd=runs.parent)
    assert made.returncode == 0, made.stderr
    resumed = ipulaunch("resume", "images-stopped", cwd=runs.parent)
    assert resumed.returncode == 0, resumed.stderr
    summary = json.loads((runs / "images-stopped" / "summary.json").read_text())
    assert summary["validation_samples"] == 16


def test_checkpoints_can_be_validated(runs: Path) -> None:
    shape = "--side 8 --n-conv-layers 2 --set model.conv_size=2 --set model.fc1_size=4 --set model.fc2_size=4"
    line = f"cosmoflow --pod 4 --num-instances 1 --engine openmpi {shape} --set data.n_valid=8"
    words = [*line.split(), "--no-training", "--checkpoint-input-dir", "runs/done", "--run-dir", "validated"]
    done = ipulaunch(*words, cwd=runs.parent)
    assert done.returncode == 0, done.stderr
    before, now = (json.loads((runs.parent / at / "summary.json").read_text()) for at in ("runs/done", "validated"))
    assert now["metrics"]["val_loss"] == pytest.approx(before["metrics"]["val_loss"], rel=1e-4)
