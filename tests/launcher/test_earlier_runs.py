"""Which run `--resume` means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.launcher.earlier_runs import newest_run

Run = Callable[..., Any]


@pytest.fixture()
def runs(tmp_path: Path) -> Path:
    """Runs of several workloads, the newest of them without a checkpoint."""
    base = tmp_path / "runs"
    names = ("mnist-1", "cifar10-2", "mnist-3", "cifar100-4", "mnist-5")
    for age, name in enumerate(names):
        path = base / name / "checkpoints" / "update-00000008"
        (path if name != "mnist-5" else base / name).mkdir(parents=True)
        os.utime(base / name, (1000 + age, 1000 + age))
    return base


@pytest.mark.parametrize(
    ("workload", "name"), [("mnist", "mnist-3"), ("cifar10", "cifar10-2"), ("cifar100", "cifar100-4")]
)
def test_newest_run_with_a_checkpoint(workload: str, name: str, runs: Path) -> None:
    assert newest_run(workload) == Path("runs", name)


def test_no_run_is_no_newest_run(runs: Path) -> None:
    assert newest_run("cosmoflow") is None


def resumed(run: Run, *words: str) -> str:
    code, out, err = run("mnist", *words, "--dry-run")
    assert code == 0, err
    worker: str = out[out.index("--backend") :].rstrip("\n")
    return worker


def test_auto_is_the_path_of_the_newest_run(runs: Path, ipulaunch: Run) -> None:
    assert resumed(ipulaunch, "--resume", "auto") == f"--backend ipu --set training.resume={runs / 'mnist-3'}"


def test_named_run_becomes_a_whole_path(runs: Path, ipulaunch: Run) -> None:
    assert resumed(ipulaunch, "--resume", "runs/mnist-1") == f"--backend ipu --set training.resume={runs / 'mnist-1'}"


def test_auto_without_a_run_starts_anew(ipulaunch: Run) -> None:
    assert resumed(ipulaunch, "--resume", "auto") == "--backend ipu"


def test_run_that_is_not_there_is_refused(ipulaunch: Run) -> None:
    code, out, err = ipulaunch("mnist", "--resume", "runs/none", "--dry-run")
    assert (code, out) == (5, "")
    assert "there is no run or checkpoint runs/none" in err
