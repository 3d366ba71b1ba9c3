"""`ipulaunch status` and `ps`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import Times
from ipulaunch.launcher.schedulers import record
from ipulaunch.launcher.supervise.claim import claim
from ipulaunch.launcher.supervise.endings import record_ending
from ipulaunch.launcher.supervise.verdict import Verdict

Run = Callable[..., Any]
TRAINING = {
    "event": "training",
    "time_ns": 1,
    "samples": 32,
    "epochs": 2,
    "updates_per_epoch": 4,
    "first_update": 0,
    "left_out": 0,
}


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
def test_state_from_records(records: Any, state: str, make_run: Any, state_of: Any) -> None:
    make_run("a", **records)
    assert state_of("a") == state


def test_heart_that_beats_no_more(make_run: Any, state_of: Any) -> None:
    path = make_run("a", heartbeat="01")
    for index in range(2):
        os.utime(RunDirectory(path).heartbeat(index), (1, 1))
    assert state_of("a") == "failed"


def test_launcher_that_was_killed(make_run: Any, state_of: Any, ipulaunch: Run) -> None:
    run = RunDirectory(make_run("a"))
    with claim(run):
        assert state_of("a") == "running"
    assert "failed: its launcher ended without a verdict" in ipulaunch("status", "a").out
    run.launcher.write_text('{"host": "elsewhere", "pid": 12}')
    assert state_of("a") == "unknown"


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
        ["logs", f"ipulaunch logs {path}"],
    ]


@pytest.mark.parametrize(
    ("summary", "share"),
    [
        ({}, 0.25),
        ({"times_s_by_instance": [{"data": 3, "device": 1}]}, 0.75),
        ({"times_s_by_instance": [{"data": "3"}, 7]}, 0.25),
    ],
    ids=["since the last row", "of the whole training", "of a damaged summary"],
)
def test_waiting_for_data_is_shown(summary: Dict[str, Any], share: float, make_run: Any, ipulaunch: Run) -> None:
    run = RunDirectory(make_run("a", done_json="01"))
    with run.events(1).open("a") as file:
        file.write(json.dumps({"time_ns": 3, **Times(8, {"data": 1, "device": 3}).to_json()}) + "\n")
    run.summary.write_text(json.dumps(summary))
    assert f"time      waiting for data {share * 100:.0f} %\n" in ipulaunch("status", "a").out
    assert json.loads(ipulaunch("status", "a", "--json").out)["waiting"] == share


def test_a_run_that_has_failed_says_how_to_go_on(make_run: Any, ipulaunch: Run, write_job: Any) -> None:
    path = make_run("a", error_json="1")
    assert "ipulaunch resume" not in ipulaunch("status", "a").out  # a program knows by itself how to continue
    write_job(path, "")
    assert f"resume    ipulaunch resume {path}\n" in ipulaunch("status", "a").out


def test_run_that_is_not_there(make_run: Any, ipulaunch: Run, tmp_path: Path) -> None:
    make_run("cosmoflow-1")
    for command in ("status", "logs", "cancel"):
        code, _, err = ipulaunch(command, "cosmoflw-1")
        assert code == 2
        assert "there is no run cosmoflw-1\nhint: did you mean cosmoflow-1?" in err
    assert "the name of the run is empty" in ipulaunch("status", "").err
    code, _, err = ipulaunch("status", "x" * 300)  # longer than names may be
    assert code == 2 and f"there is no run {'x' * 300}" in err
    (tmp_path / "empty").mkdir()
    assert "is not a run: it has no plan.json" in ipulaunch("status", "empty").err


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


@pytest.mark.parametrize(
    ("environ", "number"),
    [
        ({"SLURM_JOB_ID": "13"}, "13"),
        ({"SLURM_JOB_ID": "13", "SLURM_JOB_NAME": "interactive"}, "12"),
        ({"SLURM_JOB_ID": "--all"}, "12"),
        ({"PBS_JOBID": "13.p"}, "12"),
        ({}, "12"),
    ],
    ids=["again", "interactive", "no-id", "other-scheduler", "here"],
)
def test_a_script_that_is_submitted_again_has_a_new_id(environ: Dict[str, str], number: str, make_run: Any) -> None:
    path = make_run("a", job={"scheduler": "slurm", "id": "12", "cancelled": "then"})
    record.renew(path, environ)
    job = record.read(path)
    assert job is not None and (job.id, bool(job.cancelled)) == (number, number == "12")


@pytest.mark.parametrize(
    ("exit_code", "state"), [(0, "done"), (7, "failed"), (75, "stopped"), (130, "cancelled")], ids=str
)
def test_a_program_is_as_its_launcher_left_it(exit_code: int, state: str, make_run: Any, state_of: Any) -> None:
    path = make_run("a")
    record_ending(RunDirectory(path), Verdict(exit_code, "so it ended"))
    assert state_of("a") == state
    (path / "attempts" / "1").mkdir(parents=True)  # another attempt, of which nothing is known yet
    assert state_of("a") == "unknown"


def test_all_runs_of_a_file_is_refused(ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert ipulaunch("ps", "--runs-dir", "file").code == 2


def test_updates_before_a_restart_count(make_run: Any, ipulaunch: Run) -> None:
    path = make_run("a", heartbeat="01")
    resumed = {"event": "resumed", "time_ns": 3, "path": "checkpoints/update-00000006", "update": 6}
    RunDirectory(path).events(0).write_text(json.dumps(TRAINING) + "\n" + json.dumps(resumed) + "\n")
    assert json.loads(ipulaunch("status", "a", "--json").out)["update"] == 6


@pytest.mark.parametrize(
    ("codes", "attempts", "most", "counts", "rows"),
    [
        pytest.param([75, 7, 75], 4, 3, (1, 2), ["restarts 1 of 3", "preempted 2 of 100"], id="both"),
        pytest.param([75, 75], 3, 0, (0, 2), ["preempted 2 of 100"], id="preemptions-are-no-restarts"),
        pytest.param([7], 1, 3, (0, 0), ["restarts 0 of 3"], id="a-failure-that-is-the-end"),
        pytest.param([], 1, 0, (0, 0), [], id="nothing"),
        pytest.param(
            [7, 7], 3, 1, (2, 0), ["restarts 2, with ipulaunch resume; --max-restarts 1 is for one launcher"], id="more"
        ),
    ],
)
def test_started_again_is_counted(
    codes: List[int],
    attempts: int,
    most: int,
    counts: Any,
    rows: List[str],
    make_run: Any,
    ipulaunch: Run,
    write_job: Any,
) -> None:
    path = make_run("a", done_json="01")
    run = RunDirectory(path)
    write_job(path, "", max_restarts=most)
    for number in range(1, attempts):
        (run.attempts / str(number)).mkdir(parents=True)
    lines = [{"attempt": n, "exit_code": code, "headline": "", "time": ""} for n, code in enumerate(codes, start=1)]
    run.endings.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = json.loads(ipulaunch("status", "a", "--json").out)
    assert (data["restarts"], data["preemptions"]) == counts
    assert (data["max_restarts"], data["max_preemptions"]) == (most, 100)
    shown = [" ".join(line.split()) for line in ipulaunch("status", "a").out.splitlines()]
    assert [line for line in shown if line.startswith(("restarts", "preempted"))] == rows


def test_an_attempt_that_recorded_nothing_is_where_its_checkpoint_is(
    make_run: Any, ipulaunch: Run, write_job: Any
) -> None:
    path = make_run("a")
    write_job(path, "")
    RunDirectory(path).events(0).unlink()
    assert "updates   -\n" in ipulaunch("status", "a").out
    (path / "checkpoints" / "update-00000060").mkdir(parents=True)
    assert "updates   60\n" in ipulaunch("status", "a").out
    assert json.loads(ipulaunch("status", "a", "--json").out)["update"] == 60
