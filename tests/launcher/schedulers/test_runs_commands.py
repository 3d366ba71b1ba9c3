"""`ipulaunch ps`, `status`, `logs` and `cancel`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.launcher import run_states
from ipulaunch.launcher.commands import logs
from ipulaunch.launcher.run_processes import launcher_of, pids_of
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.topology.plan import Plan, to_json

Run = Callable[..., Any]
UPDATES = [
    {"event": "training", "time_ns": 1, "epochs": 2, "updates_per_epoch": 4, "left_out": 0},
    {"event": "log", "time_ns": 2, "update": 3, "samples_per_s": 1.0},
]


@pytest.fixture()
def make_run(tmp_path: Path, make_plan: Callable[..., Plan]) -> Callable[..., Path]:
    """A run of two instances with some records."""

    def make(name: str, *, age: int = 0, inside: str = "", job: Dict[str, str] = {}, **records: str) -> Path:  # noqa: B006
        path = tmp_path / "runs" / name
        for place in (path, path / inside):
            place.mkdir(parents=True, exist_ok=True)
            (place / "plan.json").write_text(to_json(make_plan(4, 2)))
        then = 1_790_000_000 - age
        os.utime(path / "plan.json", (then, then))
        run = RunDirectory(path / inside)
        for index in range(2):
            run.instance(index).mkdir()
            run.log(index).write_text(f"first line of {index}\nlast of {index}")
            run.events(index).write_text("".join(json.dumps(record) + "\n" for record in UPDATES))
            for kind, whose in records.items():
                if str(index) in whose:
                    (run.instance(index) / kind.replace("_", ".")).write_text("{}")
        if job:
            fields = {"script": "job.sh", "submitted": "2026-11-16T10:00:00Z", "workload": "cosmoflow", **job}
            record.write(path, Submitted(**fields))
        return path

    return make


def _state(run: Run, name: str) -> str:
    code, out, err = run("status", name, "--json")
    assert code == 0, err
    state: str = json.loads(out)["state"]
    return state


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ({"done_json": "01"}, "done"),
        ({"done_json": "0"}, "unknown"),
        ({"error_json": "1"}, "failed"),
        ({"done_json": "0", "error_json": "1"}, "failed"),
        ({"stopped_json": "01"}, "stopped"),
        ({"heartbeat": "01"}, "running"),
        ({}, "unknown"),
    ],
)
def test_state_from_records(records: Any, state: str, make_run: Any, ipulaunch: Run) -> None:
    make_run("a", **records)
    assert _state(ipulaunch, "a") == state


def test_heart_that_beats_no_more(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", heartbeat="01")
    for index in range(2):
        os.utime(RunDirectory(path).heartbeat(index), (1, 1))
    assert _state(ipulaunch, "a") == "failed"


def test_status_as_text(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", done_json="01")
    code, out, err = ipulaunch("status", str(path))
    assert (code, err) == (0, "")
    rows = [line.split(maxsplit=1) for line in out.splitlines()]
    assert rows == [
        ["run", str(path)],
        ["workload", "cosmoflow"],
        ["state", "done"],
        ["updates", "3/8"],
        ["started", "2026-09-21T14:13:20Z"],
        ["where", "localhost"],
    ]


def test_run_that_is_not_there(make_run: Any, ipulaunch: Run, tmp_path: Path) -> None:
    make_run("cosmoflow-1")
    for command in ("status", "logs", "cancel"):
        code, _, err = ipulaunch(command, "cosmoflw-1")
        assert code == 2
        assert "there is no run cosmoflw-1\nhint: did you mean cosmoflow-1?" in err
    (tmp_path / "empty").mkdir()
    assert "is not a run: it has no plan.json" in ipulaunch("status", "empty").err


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


def test_records_say_how_a_forgotten_job_ended(make_run: Any, ipulaunch: Run, scheduler: Any) -> None:
    make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, done_json="01")
    make_run("b", inside="run", job={"scheduler": "slurm", "id": "13"}, stopped_json="01")
    assert (_state(ipulaunch, "a"), _state(ipulaunch, "b")) == ("done", "stopped")
    scheduler.says("squeue", "13|FAILED|n1|NonZeroExitCode")
    assert _state(ipulaunch, "b") == "stopped"


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


def test_ps_without_runs(ipulaunch: Run, tmp_path: Path) -> None:
    assert ipulaunch("ps") == (0, "", "there are no runs in runs\n")
    assert ipulaunch("ps", "--json").out == "[]\n"
    assert ipulaunch("ps", "--runs-dir", str(tmp_path / "none")).code == 0


def test_ps_with_a_damaged_record(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", done_json="01")
    (path / "job.json").write_text("{")
    code, out, err = ipulaunch("ps")
    assert (code, "done" in out) == (0, True)
    assert "is not the record of a job" in err


def test_logs(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", done_json="01")
    (path / "engine.txt").write_text("hello\n")
    code, out, _ = ipulaunch("logs", "a")
    assert code == 0
    assert sorted(out.splitlines()) == [
        "engine | hello",
        "localhost:0 | first line of 0",
        "localhost:0 | last of 0",
        "localhost:1 | first line of 1",
        "localhost:1 | last of 1",
    ]
    assert ipulaunch("logs", "a", "--instance", "1").out == "first line of 1\nlast of 1\n"


def test_logs_of_an_instance_that_is_not_there(make_run: Any, ipulaunch: Run) -> None:
    make_run("a")
    code, _, err = ipulaunch("logs", "a", "--instance", "2")
    assert code == 2
    assert "there is no instance 2: the run has 0 to 1" in err


def test_logs_of_a_job(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", inside="run", job={"scheduler": "slurm", "id": "12"}, done_json="01")
    (path / "scheduler.log").write_text("from Slurm\n")
    assert "scheduler | from Slurm\n" in ipulaunch("logs", "a").out
    assert ipulaunch("logs", "a", "--instance", "0").out.startswith("first line of 0\n")


def test_logs_of_a_pod(make_run: Any, scheduler: Any, tmp_path: Path) -> None:
    job = {"scheduler": "kubernetes", "id": "a", "kind": "IPUJob", "namespace": "default", "uid": "u1"}
    make_run("a", job=job)
    done = subprocess.run(
        [sys.executable, "-m", "ipulaunch.launcher", "logs", "a", "-f"],
        capture_output=True,
        encoding="utf-8",
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines() == ["logs of", "pod/a-worker-0", "--namespace=default", "--follow"]


def test_logs_are_followed_until_the_run_ends(make_run: Any, ipulaunch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_run("a", heartbeat="01")
    monkeypatch.setattr(logs, "STATE_INTERVAL_S", 0.05)
    monkeypatch.setattr(logs, "LOOK_INTERVAL_S", 0.01)
    run = RunDirectory(path)

    def end() -> None:
        with run.log(0).open("a") as file:
            file.write(", and more\n")
        for index in range(2):
            run.done(index).touch()

    timer = threading.Timer(0.2, end)
    timer.start()
    out = ipulaunch("logs", "a", "-f", "--instance", "0").out
    timer.join()
    assert out == "first line of 0\nlast of 0, and more\n"


@pytest.mark.parametrize(
    ("job", "command"),
    [
        ({"scheduler": "slurm", "id": "12"}, ["scancel", "12"]),
        ({"scheduler": "pbs", "id": "7.p"}, ["qdel", "7.p"]),
    ],
)
def test_cancel_by_id(job: Any, command: Any, make_run: Any, ipulaunch: Run, scheduler: Any) -> None:
    path = make_run("a", job=job)
    code, out, _ = ipulaunch("cancel", "a")
    assert (code, out) == (0, f"cancelled {job['scheduler']} job {job['id']}\n")
    assert scheduler.calls[-1] == command
    assert json.loads((path / "job.json").read_text())["cancelled"]
    assert _state(ipulaunch, "a") == "cancelled"


def test_job_that_has_ended_is_not_cancelled(make_run: Any, ipulaunch: Run, scheduler: Any) -> None:
    make_run("a", job={"scheduler": "slurm", "id": "12"})
    scheduler.says("squeue", "12|COMPLETED|n1|None")
    code, _, err = ipulaunch("cancel", "a")
    assert code == 2
    assert "slurm job 12 has ended: COMPLETED" in err
    assert [call[0] for call in scheduler.calls] == ["squeue"]


def test_refused_cancel_is_told(make_run: Any, ipulaunch: Run, scheduler: Any) -> None:
    make_run("a", job={"scheduler": "slurm", "id": "12"})
    scheduler.says("refuse", "Access/permission denied")
    code, _, err = ipulaunch("cancel", "a")
    assert code == 7
    assert "scancel refused to cancel job 12: Access/permission denied" in err


def test_run_of_this_machine_is_cancelled_through_its_launcher(make_run: Any, ipulaunch: Run, tmp_path: Path) -> None:
    path = make_run("a")
    assert "does not run on this machine" in ipulaunch("cancel", "a").err
    code = f"""
import subprocess, sys, time
words = ["-m", "ipulaunch.workers", "mnist", "--run-dir", {str(path)!r}]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)", *words])
print("ready", flush=True)
try:
    child.wait()
finally:
    child.kill()
"""
    words = [sys.executable, "-c", code, "/some/bin/ipulaunch", "mnist", "--run-dir", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, encoding="utf-8") as launcher:
        try:
            assert launcher.stdout is not None
            assert launcher.stdout.readline() == "ready\n"
            deadline = time.monotonic() + 10
            while not pids_of(path) and time.monotonic() < deadline:  # the child is on its way through exec
                time.sleep(0.01)
            assert launcher_of(path) == launcher.pid
            assert _state(ipulaunch, "a") == "running"
            assert ipulaunch("cancel", "a").out == f"asked process {launcher.pid} to end\n"
            assert launcher.wait(10) == -signal.SIGTERM
        finally:
            for pid in pids_of(path):
                os.kill(pid, signal.SIGKILL)
            launcher.kill()
    assert pids_of(path) == []


def test_all_runs_of_a_file_is_refused(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert ipulaunch("ps", "--runs-dir", "file").code == 2


def test_updates_before_a_restart_count(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", heartbeat="01")
    resumed = {"event": "resumed", "time_ns": 3, "path": "checkpoints/update-00000006", "update": 6}
    RunDirectory(path).events(0).write_text(json.dumps(UPDATES[0]) + "\n" + json.dumps(resumed) + "\n")
    assert json.loads(ipulaunch("status", "a", "--json").out)["update"] == 6


def test_started_again_is_counted(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", done_json="01")
    for number in range(2):
        (path / "attempts" / str(number)).mkdir(parents=True)
    assert "restarts  2\n" in ipulaunch("status", "a").out
    assert run_states.records_of(path) == RunDirectory(path)
