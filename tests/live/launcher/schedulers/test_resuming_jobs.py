"""`ipulaunch resume` of runs that were submitted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import from_yaml
from ipulaunch.launcher.engines.registry import ENGINES, engine_class
from ipulaunch.launcher.runs import running

Run = Callable[..., Any]


class Resumed:
    """What `ipulaunch resume` would attend to, without doing it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: List[Path] = []
        monkeypatch.setattr(running, "attend", self._attend)
        for name in ENGINES:
            monkeypatch.setattr(engine_class(name), "require", lambda engine: None)

    def _attend(self, launch: Any, run: RunDirectory, display: Any, signals: Any) -> int:
        self.runs.append(run.path)
        return 0


@pytest.mark.parametrize("said", [("sacct", "12|FAILED|n1|75:0"), ("squeue", "")], ids=["ended", "forgotten"])
def test_a_submitted_run_is_resumed_where_its_records_are(
    said: Any, make_run: Any, ipulaunch: Run, scheduler: Any, monkeypatch: pytest.MonkeyPatch, write_job: Any
) -> None:
    path = make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, stopped_json="01")
    write_job(path, "run")
    (path / "run" / "checkpoints" / "update-00000004").mkdir(parents=True)
    scheduler.says(*said)
    resumed = Resumed(monkeypatch)
    code, _, err = ipulaunch("resume", "a")
    assert (code, resumed.runs) == (0, [path / "run"]), err
    assert not (path / "instance-000").exists() and (path / "run" / "attempts" / "1").is_dir()
    job = from_yaml((path / "run" / "job.yaml").read_text(), "job.yaml")
    assert job.settings.training.resume == str(path / "run")


@pytest.mark.parametrize(("line", "word"), [("12|PENDING||Priority", "waiting"), ("12|RUNNING|n1|None", "running")])
def test_a_run_whose_job_goes_on_is_not_resumed(
    line: str, word: str, make_run: Any, ipulaunch: Run, scheduler: Any, monkeypatch: pytest.MonkeyPatch, write_job: Any
) -> None:
    path = make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"})
    write_job(path, "run")
    scheduler.says("squeue", line)
    resumed = Resumed(monkeypatch)
    for name in ("a", "runs/a/run"):
        code, _, err = ipulaunch("resume", name)
        assert (code, resumed.runs) == (2, [])
        assert f"slurm job 12 of a is {word}" in err and f"ipulaunch cancel {path}" in err


def test_a_job_that_was_put_back_resumes_its_own_run(
    make_run: Any, ipulaunch: Run, scheduler: Any, monkeypatch: pytest.MonkeyPatch, write_job: Any
) -> None:
    path = make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, stopped_json="01")
    write_job(path, "run")
    scheduler.says("squeue", "12|RUNNING|n1|None")
    resumed = Resumed(monkeypatch)
    code, _, err = ipulaunch("resume", str(path / "run"), env={"SLURM_JOB_ID": "12"})
    assert (code, resumed.runs, scheduler.calls) == (0, [path / "run"], []), err


@pytest.mark.parametrize("cwd", [".", "runs/a", "runs/a/run"])
def test_the_place_of_its_records_is_the_run(
    cwd: str, make_run: Any, ipulaunch: Run, scheduler: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"})
    scheduler.says("squeue", "12|PENDING||Resources")
    monkeypatch.chdir(tmp_path / cwd)
    name = os.path.relpath(path / "run")
    found = json.loads(ipulaunch("status", name, "--json").out)
    assert (found["path"], found["state"], found["id"]) == (str(path), "waiting", "12")
    assert ipulaunch("cancel", name).out == "cancelled slurm job 12\n"


@pytest.mark.parametrize(
    ("job", "hint"),
    [
        ({"scheduler": "slurm", "id": "12"}, "sbatch {}/job.sh"),
        ({"scheduler": "pbs", "id": "7.p"}, "qsub {}/job.sh"),
        (
            {"scheduler": "kubernetes", "id": "a", "kind": "Job", "namespace": "x", "uid": "u"},
            "submit again with --res",
        ),
    ],
    ids=["slurm", "pbs", "kubernetes"],
)
def test_a_job_that_left_no_records_here_is_not_resumed(
    job: Any, hint: str, make_run: Any, ipulaunch: Run, scheduler: Any, monkeypatch: pytest.MonkeyPatch, write_job: Any
) -> None:
    path = make_run("a", job=job)
    write_job(path, "")
    resumed = Resumed(monkeypatch)
    code, _, err = ipulaunch("resume", "a")
    assert (code, resumed.runs) == (2, [])
    assert f"{job['scheduler']} job {job['id']} has left no records" in err and hint.format(path) in err


def test_a_run_that_was_finished_here_is_done_whatever_became_of_its_job(
    make_run: Any, scheduler: Any, state_of: Any
) -> None:
    make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, done_json="01")
    scheduler.says("sacct", "12|CANCELLED by 1000|n1|0:0")
    assert state_of("a") == "done"


def test_a_run_without_a_launcher_is_left_alone_while_it_lives(
    make_run: Any, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch, write_job: Any
) -> None:
    path = make_run("a", heartbeat="01")
    write_job(path, "")
    resumed = Resumed(monkeypatch)
    how = f"end its poprun or mpirun; touch {path / 'stop'} lets it write a checkpoint first"
    assert ipulaunch("resume", "a")[::2] == (2, f"error: a runs, without a launcher\nhint: wait for it, or {how}\n")
    assert ipulaunch("cancel", "a")[::2] == (2, f"error: a runs without a launcher\nhint: {how}\n")
    RunDirectory(path).error(1).write_text("{}")  # it has just ended
    code, _, err = ipulaunch("resume", "a")
    assert (code, resumed.runs) == (0, [path]), err
