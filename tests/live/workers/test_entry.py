"""The worker's entry point, as an engine starts it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from fixtures.canaries import Canaries

from ipulaunch.topology.planning.plan import from_json

LONGEST_S = 1800  # bounds a hang
WORKER = [sys.executable, "-m", "ipulaunch.workers"]


def start(
    *arguments: str, cwd: Path, environ: Optional[Dict[str, str]] = None, workload: str = "cosmoflow"
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **(environ or {})}
    return subprocess.run(
        [*WORKER, workload, *arguments],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def test_a_run_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = start("--backend", "cpu", "--run-dir", str(tmp_path / "gone"), cwd=tmp_path)
    assert done.returncode == 4
    assert "error: the run directory cannot be read" in done.stderr


@pytest.mark.parametrize("more", [[], ["--run-dir", "run"]], ids=["alone", "in a run"])
def test_an_environment_that_contradicts_itself_is_said(tmp_path: Path, more: List[str]) -> None:
    environ = {"POPDIST_NUM_TOTAL_REPLICAS": "4", "POPDIST_NUM_LOCAL_REPLICAS": "3"}
    done = start("--backend", "cpu", *more, cwd=tmp_path, environ=environ)
    assert done.returncode == 4
    assert done.stderr.startswith("error: POPDIST_* do not fit together")
    assert "4 replicas, 3 of them here" in done.stderr


def test_nothing_that_reads_its_threads_from_the_environment_is_imported_before_they_are_set() -> None:
    code = "import sys, ipulaunch.workers.__main__; sys.exit(not {'numpy', 'tensorflow'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=LONGEST_S, check=False).returncode == 0


def test_several_instances_without_mpi_are_said() -> None:
    code = "from ipulaunch.workers.backends.collective import join; join(0, 2)"
    environ = {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ},
        capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert "NotReadyError: MPI says process 0 of 1, POPDIST_* say instance 0 of 2" in done.stderr


def test_a_shipped_value_that_gives_way_is_noted(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise ImportError('nothing is to be trained')")
    words = ["--backend", "cpu", "--rehearsal", "--set", "optimizer.name=adam"]
    done = start(*words, cwd=tmp_path, environ={"PYTHONPATH": str(tmp_path)}, workload="cifar10")
    assert done.returncode == 4
    assert "note: optimizer.momentum 0.9 of configs/workloads/cifar10.yaml:" in done.stderr


TINY = [
    word
    for text in ("data.side=4", "data.n_train=3", "data.n_valid=2", "model.n_conv_layers=1", "model.conv_size=1")
    for word in ("--set", text)
]


@pytest.mark.night
def test_a_loss_that_is_not_finite_ends_the_job(tmp_path: Path) -> None:
    """At night: test_train.py has the same in process."""
    wild = ["--set", "optimizer.name=sgd", "--set", "optimizer.learning_rate=1e30"]
    done = start("--backend", "cpu", "--rehearsal", *TINY, *wild, cwd=tmp_path)
    assert done.returncode == 7
    assert "the loss is not finite any more after update 2" in done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert not (run / "checkpoints").exists()


@pytest.mark.core
def test_started_by_hand_it_is_the_only_instance_and_makes_its_own_run(tmp_path: Path) -> None:
    canaries = Canaries()
    done = canaries.run(*WORKER, "cosmoflow", "--backend", "cpu", "--rehearsal", *TINY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert canaries.files(tmp_path) == [] and stat.S_IMODE(run.stat().st_mode) == 0o700
    first, where, training, *_ = done.stdout.decode().splitlines()
    assert first == f"run directory: runs/{run.name}"
    assert where.startswith("instance 0 of 1 on ") and training == "training: 2 epochs of 3 weight updates"
    summary: Any = json.loads((run / "summary.json").read_text())
    assert summary["updates"] == 6 and len(summary["samples_per_s_by_instance"]) == 1
    assert (run / "instance-000" / "done.json").exists()
    plan = from_json((run / "plan.json").read_text())
    assert (plan.workload, plan.system, plan.replicas, plan.hosts) == ("cosmoflow", "1 IPU", 1, ("localhost",))
    started = json.loads((run / "instance-000" / "events.jsonl").read_text().splitlines()[0])
    assert started["threads"]["intra_op"] == 1  # a rehearsal is deterministic
    assert started["binding"]["cores"] >= 1
