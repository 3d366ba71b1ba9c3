"""Which run `--resume` means."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path
from typing import Any, Callable, Tuple

import pytest

from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.launch.earlier_runs import all_runs, newest_run

Run = Callable[..., Any]


def job_of(workload: str, *texts: str) -> str:
    overrides = [assignment(text, "--set") for text in texts]
    return to_yaml(Job(workload, "cpu", resolve(workload, rehearsal=False, overrides=overrides).settings))


def make_runs(place: Path) -> Path:
    """Runs of several workloads, the newest of them without a checkpoint."""
    base = place / "runs"
    names = ("mnist-1", "cifar10-2", "mnist-3", "cifar100-4", "mnist-5")
    for age, name in enumerate(names):
        path = base / name / "checkpoints" / "update-00000008"
        (path if name != "mnist-5" else base / name).mkdir(parents=True)
        (base / name / "job.yaml").write_text(job_of(name.split("-")[0]))
        (base / name / "plan.json").touch()
        os.utime(base / name / "plan.json", (1000 + age, 1000 + age))
    return base


@pytest.fixture()
def runs(tmp_path: Path) -> Path:
    return make_runs(tmp_path)


def resuming(path: Path) -> str:
    """The end of a printed line that resumes a run."""
    return f"--backend ipu --set {shlex.quote(f'training.resume={path}')}"


@pytest.mark.parametrize(
    ("workload", "name"), [("mnist", "mnist-3"), ("cifar10", "cifar10-2"), ("cifar100", "cifar100-4")]
)
def test_newest_run_with_a_checkpoint(workload: str, name: str, runs: Path) -> None:
    assert newest_run(workload) == Path("runs", name)


def test_checkpoints_may_be_elsewhere(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "update-00000008").mkdir(parents=True)
    (runs / "mnist-5" / "job.yaml").write_text(
        job_of("mnist", f"training.checkpoint_output_dir={tmp_path / 'elsewhere'}")
    )
    assert newest_run("mnist") == Path("runs", "mnist-5")


def test_a_run_may_have_any_name(runs: Path) -> None:
    (runs / "cifar10-2").rename(runs / "mine")
    assert newest_run("cifar10") == Path("runs", "mine")


def test_a_submitted_run_has_its_checkpoints_inside(runs: Path, ipulaunch: Run) -> None:
    inside = runs / "mnist-5" / "run"
    (inside / "checkpoints" / "update-00000008").mkdir(parents=True)
    for name in ("plan.json", "job.yaml"):
        (inside / name).write_text((runs / "mnist-5" / name).read_text())
    assert newest_run("mnist") == Path("runs", "mnist-5")
    assert resumed(ipulaunch, "--resume", "mnist-5") == resuming(runs / "mnist-5")


@pytest.mark.parametrize(
    ("old", "new"),
    [("workload: mnist", "workload: mnister"), ("backend: cpu", "backend: gpu")],
    ids=["workload", "backend"],
)
def test_a_run_that_we_cannot_read_is_passed_over(old: str, new: str, runs: Path) -> None:
    """As one of another version, which has workloads that this one does not have."""
    job = runs / "mnist-3" / "job.yaml"
    job.write_text(job.read_text().replace(old, new, 1))
    assert newest_run("mnist") == Path("runs", "mnist-1")


def test_a_link_to_nowhere_is_no_run(runs: Path) -> None:
    (runs / "latest").symlink_to("gone")
    assert newest_run("mnist") == Path("runs", "mnist-3")


@pytest.mark.parametrize("closed", ["mnist-5", "mnist-5/run"])
def test_runs_that_others_keep_to_themselves_are_passed_over(
    closed: str, runs: Path, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told by a fake: nothing is closed to root."""
    stat = os.stat

    def refuse(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(path).startswith(f"runs/{closed}/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refuse)
    assert newest_run("mnist") == Path("runs", "mnist-3")
    code, out, err = ipulaunch("ps")
    assert code == 0 and "mnist-3" in out, err


def test_the_newest_run_is_that_of_ps(runs: Path) -> None:
    os.utime(runs / "mnist-1", (2000, 2000))  # as whoever looks into it and leaves a file
    assert newest_run("mnist") == Path("runs", "mnist-3")
    os.utime(runs / "mnist-1" / "plan.json", (2000, 2000))
    assert newest_run("mnist") == Path("runs", "mnist-1")
    assert [path.name for path in all_runs(runs)][:3] == ["mnist-1", "mnist-5", "cifar100-4"]


def test_no_run_is_no_newest_run(runs: Path) -> None:
    assert newest_run("cosmoflow") is None


def resumed(run: Run, *words: str) -> str:
    code, out, err = run("mnist", *words, "--dry-run")
    assert code == 0, err
    worker: str = out[out.index("--backend") :].rstrip("\n")
    return worker


def test_auto_is_the_path_of_the_newest_run(runs: Path, ipulaunch: Run) -> None:
    assert resumed(ipulaunch, "--resume", "auto") == resuming(runs / "mnist-3")


@pytest.mark.parametrize("name", ["runs/mnist-1", "mnist-1"])
def test_named_run_becomes_a_whole_path(name: str, runs: Path, ipulaunch: Run) -> None:
    assert resumed(ipulaunch, "--resume", name) == resuming(runs / "mnist-1")


def test_auto_passes_over_runs_of_another_network(runs: Path, ipulaunch: Run) -> None:
    (runs / "mnist-3" / "job.yaml").write_text(job_of("mnist", "data.mean=[1.0]"))
    assert str(runs / "mnist-1") in resumed(ipulaunch, "--resume", "auto")
    assert str(runs / "mnist-3") in resumed(ipulaunch, "--resume", "auto", "--set", "data.mean=[1.0]")


@pytest.mark.parametrize("words", [("--resume", "mine"), ("--no-training", "--checkpoint-input-dir", "runs/mine")])
def test_a_run_of_another_network_is_refused_with_what_differs(
    words: Tuple[str, ...], tmp_path: Path, ipulaunch: Run
) -> None:
    path = tmp_path / "runs" / "mine"
    (path / "checkpoints" / "update-00000008").mkdir(parents=True)
    job = job_of("cosmoflow", "data.side=16", "model.n_conv_layers=3", "training.seed=5", "model.dropout=0.1")
    (path / "job.yaml").write_text(job)
    code, out, err = ipulaunch("cosmoflow", "--pod", "16", *words, "--dry-run")
    assert (code, out) == (6, "")
    assert "was trained with data.side 16 and model.n_conv_layers 3, and this job has data.side 64 and" in err
    assert "hint: add --side 16 --n-conv-layers 3, as in that run" in err
    assert ipulaunch("cosmoflow", *words, "--pod", "16", "--side", "16", "--n-conv-layers", "3", "--dry-run").code == 0


def test_auto_without_a_run_starts_anew(ipulaunch: Run) -> None:
    assert resumed(ipulaunch, "--resume", "auto") == "--backend ipu"


@pytest.mark.parametrize("name", ["runs/none", "x" * 300], ids=["none", "longer than names may be"])
def test_run_that_is_not_there_is_refused(name: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("mnist", "--resume", name, "--dry-run")
    assert (code, out) == (5, "")
    assert f"there is no run or checkpoint {name}" in err


def test_run_of_another_workload_is_refused(runs: Path, ipulaunch: Run) -> None:
    code, out, err = ipulaunch("mnist", "--resume", "cifar10-2", "--dry-run")
    assert (code, out) == (5, "")
    assert "runs/cifar10-2 is a run of cifar10, and cannot be continued by mnist" in err
    assert "ipulaunch resume runs/cifar10-2 continues it" in err


def test_what_a_job_resumes_is_told(plain_path: Path, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plain_path)
    runs = make_runs(plain_path)
    words = ("--scheduler", "slurm", "--resume", "auto", "--dry-run")
    code, _, err = ipulaunch("submit", "mnist", "--synthetic-data", "cpu", *words)
    assert code == 0 and f"note: --resume auto: continues {runs / 'mnist-3'}" in err
    code, _, err = ipulaunch("submit", "cosmoflow", "--pod", "4", *words)
    assert (
        code == 0
        and "note: --resume auto: no run of cosmoflow with this network has a checkpoint here; a new training starts"
        in err
    )


def test_nothing_to_resume_is_told(runs: Path, ipulaunch: Run) -> None:
    code, _, err = ipulaunch("cosmoflow", "--pod", "4", "--resume", "auto", "--dry-run")
    assert (
        code == 0
        and "note: --resume auto: no run of cosmoflow with this network has a checkpoint here; a new training starts"
        in err
    )
