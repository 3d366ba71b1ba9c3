"""`ipulaunch status` and `ps`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.supervise.claim import claim

Run = Callable[..., Any]


def test_cancelled_job_whose_launcher_was_killed(make_run: Any, state_of: Any, scheduler: Any) -> None:
    path = make_run("a", inside="run", job={"scheduler": "slurm", "id": "12", "cancelled": "then"})
    with claim(RunDirectory(path / "run")):
        pass
    assert state_of("a") == "cancelled"


@pytest.mark.parametrize(
    ("job", "said", "state", "where"),
    [
        ({"scheduler": "slurm", "id": "12"}, ("squeue", "12|RUNNING|n1|None"), "running", "slurm 12 on n1"),
        ({"scheduler": "slurm", "id": "12"}, ("squeue", "12|PENDING||Priority"), "waiting", "slurm 12"),
        ({"scheduler": "slurm", "id": "12"}, ("sacct", "12|FAILED|n1|7:0"), "failed", "slurm 12 on n1"),
        ({"scheduler": "slurm", "id": "12"}, ("squeue", ""), "unknown", "slurm 12"),
        ({"scheduler": "slurm", "id": "12", "cancelled": "then"}, ("squeue", ""), "cancelled", "slurm 12"),
        ({"scheduler": "pbs", "id": "7.p"}, ("qstat", "Job Id: 7.p\n    job_state = Q\n"), "waiting", "pbs 7.p"),
    ],
)
def test_state_of_a_job(
    job: Any, said: Any, state: str, where: str, make_run: Any, ipulaunch: Run, scheduler: Any
) -> None:
    make_run("a", job=job)
    scheduler.says(*said)
    data = json.loads(ipulaunch("status", "a", "--json").out)
    assert (data["state"], data["where"], data["started"]) == (state, where, "2026-11-16T10:00:00Z")


def test_records_say_how_a_forgotten_job_ended(make_run: Any, scheduler: Any, state_of: Any) -> None:
    make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, done_json="01")
    make_run("b", inside="run", job={"scheduler": "slurm", "id": "13"}, stopped_json="01")
    assert (state_of("a"), state_of("b")) == ("done", "stopped")
    scheduler.says("squeue", "13|FAILED|n1|NonZeroExitCode")
    assert state_of("b") == "stopped"


@pytest.mark.parametrize(
    ("code", "records", "state"),
    [
        pytest.param("75", {"stopped_json": "01"}, "cancelled", id="stopped"),
        pytest.param("7", {"error_json": "0"}, "cancelled", id="failed"),
        pytest.param("271", {}, "cancelled", id="killed"),
        pytest.param("0", {"done_json": "01"}, "done", id="done"),
        pytest.param("75", {"done_json": "01"}, "done", id="resumed"),
    ],
)
def test_a_cancelled_job_is_cancelled_however_it_ended(
    code: str, records: Any, state: str, make_run: Any, scheduler: Any, state_of: Any
) -> None:
    make_run("a", inside="run", job={"scheduler": "pbs", "id": "7.p", "cancelled": "then"}, **records)
    scheduler.says("qstat", f"Job Id: 7.p\n    job_state = F\n    Exit_status = {code}\n")
    assert state_of("a") == state
    scheduler.says("qstat", "")  # forgotten
    assert state_of("a") == state


def test_scheduler_that_is_not_here(make_run: Any, ipulaunch: Run, no_scheduler: None) -> None:
    make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, done_json="01")
    code, out, err = ipulaunch("status", "a", "--json")
    assert (code, json.loads(out)["state"]) == (0, "done")
    assert err == "note: there is no squeue here\n"


def test_scheduler_that_does_not_answer(make_run: Any, ipulaunch: Run, scheduler: Any) -> None:
    make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, done_json="01")
    scheduler.says("refuse", "slurm_load_jobs error: Unable to contact slurm controller")
    code, out, err = ipulaunch("status", "a", "--json")
    assert (code, json.loads(out)["state"]) == (0, "done")
    assert err == "note: squeue does not answer: slurm_load_jobs error: Unable to contact slurm controller\n"


def test_ps_lists_the_newest_first(make_run: Any, ipulaunch: Run, scheduler: Any, tmp_path: Path) -> None:
    make_run("old", age=100, done_json="01")
    make_run("new", age=1, error_json="0")
    make_run("job1", age=50, job={"scheduler": "slurm", "id": "12"})
    make_run("job2", age=60, job={"scheduler": "slurm", "id": "13"})
    (tmp_path / "runs" / "something else").mkdir()
    scheduler.says("squeue", "12|RUNNING|n1|None", "13|PENDING||Priority")
    code, out, err = ipulaunch("ps")
    assert (code, err) == (0, "")
    assert [line.split()[:4] for line in out.splitlines()] == [
        ["run", "workload", "state", "updates"],
        ["new", "cosmoflow", "failed", "3/8"],
        ["job1", "cosmoflow", "running", "3/8"],
        ["job2", "cosmoflow", "waiting", "3/8"],
        ["old", "cosmoflow", "done", "3/8"],
    ]
    assert len(scheduler.calls) == 1
    assert [row["name"] for row in json.loads(ipulaunch("ps", "--json").out)] == ["new", "job1", "job2", "old"]


def test_a_job_is_found_by_its_id(make_run: Any, ipulaunch: Run, scheduler: Any) -> None:
    path = make_run("a", job={"scheduler": "slurm", "id": "12"})
    scheduler.says("squeue", "12|PENDING||Resources")
    assert f"run        {path}" in ipulaunch("status", "12").out
    assert ipulaunch("cancel", "12").out == "cancelled slurm job 12\n"


def test_instances_without_a_launcher_are_a_run_too(make_run: Any, ipulaunch: Run, state_of: Any) -> None:
    path = make_run("a")
    words = ["-m", "ipulaunch.workers", "mnist", "--run-dir", str(path)]
    code = "import time; print('ready', flush=True); time.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE) as instance:
        try:
            assert instance.stdout is not None and instance.stdout.readline()
            assert state_of("a") == "running"
        finally:
            instance.kill()
