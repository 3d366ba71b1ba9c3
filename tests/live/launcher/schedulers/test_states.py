"""What schedulers say of jobs, in our words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ipulaunch.configs.errors import DataError, JobError
from ipulaunch.launcher.schedulers import kubernetes, pbs, record, slurm, time_limit
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.scheduler import JobState, scheduler_of

pytestmark = pytest.mark.core


def _job(number: str = "12", **more: str) -> Submitted:
    fields = {"scheduler": "slurm", "id": number, "script": "job.sh", "submitted": "", "workload": "mnist", **more}
    return Submitted(**fields)


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("12|PENDING||Resources", JobState("waiting", "PENDING (Resources)")),
        ("12|RUNNING|node[1-2]|None", JobState("running", "RUNNING", "node[1-2]")),
        ("12|COMPLETING|node1|None", JobState("ending", "COMPLETING", "node1")),
        ("12|COMPLETED|node1|None", JobState("done", "COMPLETED", "node1")),
        ("12|NEW_STATE|node1|None", JobState("unknown", "NEW_STATE", "node1")),
    ],
)
def test_squeue(line: str, state: JobState, scheduler: Any) -> None:
    scheduler.says("squeue", line, "120|FAILED||None")
    assert slurm.observe([_job()]).states == {"12": state}
    assert [call[0] for call in scheduler.calls] == ["squeue"]


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("12|COMPLETED|node1|0:0", JobState("done", "COMPLETED", "node1")),
        ("12|CANCELLED by 1000|None assigned|0:0", JobState("cancelled", "CANCELLED by 1000")),
        ("12|FAILED|node1|75:0", JobState("stopped", "FAILED (75:0)", "node1")),
        ("12|FAILED|node1|7:0", JobState("failed", "FAILED (7:0)", "node1")),
        ("12|TIMEOUT|node1|0:0", JobState("failed", "TIMEOUT", "node1")),
        ("12|OUT_OF_ME+|node1|0:125", JobState("unknown", "OUT_OF_ME+ (0:125)", "node1")),
        ("12|PREEMPTED|node1|0:0", JobState("stopped", "PREEMPTED", "node1")),
    ],
)
def test_sacct_knows_what_squeue_has_forgotten(line: str, state: JobState, scheduler: Any) -> None:
    scheduler.says("sacct", line)
    assert slurm.observe([_job()]).states == {"12": state}
    assert [call[0] for call in scheduler.calls] == ["squeue", "sacct"]


def test_many_jobs_are_one_question(scheduler: Any) -> None:
    scheduler.says("squeue", "1|RUNNING|a|None")
    scheduler.says("sacct", "2|COMPLETED|b|0:0")
    states = slurm.observe([_job("1"), _job("2"), _job("3")]).states
    assert {number: state.word for number, state in states.items()} == {"1": "running", "2": "done"}
    assert len(scheduler.calls) == 2


def test_slurm_without_accounting(scheduler: Any) -> None:
    assert slurm.observe([_job()]).states == {}


def test_what_squeue_says_is_kept_where_there_is_no_sacct(scheduler: Any, tmp_path: Path) -> None:
    scheduler.says("squeue", "1|RUNNING|a|None")
    (tmp_path / "commands" / "sacct").unlink()
    observed = slurm.observe([_job("1"), _job("2")])
    assert observed == ({"1": JobState("running", "RUNNING", "a")}, ("there is no sacct here",))


def test_other_cluster(scheduler: Any) -> None:
    scheduler.says("squeue", "12|RUNNING|a|None")
    assert slurm.observe([_job(cluster="west")]).states["12"].word == "running"
    assert "--clusters=west" in scheduler.calls[0]


def test_scancel(scheduler: Any) -> None:
    slurm.cancel(_job())
    assert scheduler.calls == [["scancel", "12"]]


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"job_state": "Q"}, JobState("waiting", "Q")),
        ({"job_state": "R", "exec_host": "n1/0*4+n2/0*4"}, JobState("running", "R", "n1,n2")),
        ({"job_state": "E"}, JobState("ending", "E")),
        ({"job_state": "F", "Exit_status": "0"}, JobState("done", "F (exit status 0)")),
        ({"job_state": "F", "Exit_status": "75"}, JobState("stopped", "F (exit status 75)")),
        ({"job_state": "F", "Exit_status": "271"}, JobState("cancelled", "F (exit status 271)")),
        ({"job_state": "F", "Exit_status": "7"}, JobState("failed", "F (exit status 7)")),
        ({"job_state": "F"}, JobState("failed", "F (exit status unknown)")),
        ({"job_state": "?"}, JobState("unknown", "?")),
    ],
)
def test_qstat(fields: Any, state: JobState, scheduler: Any) -> None:
    lines = [f"    {name} = {value}" for name, value in fields.items()]
    scheduler.says("qstat", "Job Id: 77.pbs01", "    Job_Name = mnist", *lines, "", "Job Id: 78.pbs01", "")
    assert pbs.observe([_job("77.pbs01")]).states == {"77.pbs01": state}
    assert scheduler.calls == [["qstat", "-x", "-f", "77.pbs01"]]


def test_job_that_pbs_has_forgotten(scheduler: Any) -> None:
    scheduler.says("refuse", "qstat: Unknown Job Id 77.pbs01")
    assert pbs.observe([_job("77.pbs01", scheduler="pbs")]).states == {}


def test_qstat_that_does_not_answer(scheduler: Any) -> None:
    scheduler.says("refuse", "qstat: cannot connect to server pbs01 (errno=111)")
    with pytest.raises(JobError, match="qstat does not answer: qstat: cannot connect"):
        pbs.observe([_job("77.pbs01", scheduler="pbs")])


def test_qstat_folds_long_values(scheduler: Any) -> None:
    scheduler.says("qstat", "Job Id: 77.pbs01", "    exec_host = n1/0*4+n2/", "\t0*4", "    job_state = R")
    assert pbs.observe([_job("77.pbs01")]).states["77.pbs01"].where == "n1,n2"


def test_qdel(scheduler: Any) -> None:
    pbs.cancel(_job("77.pbs01"))
    assert scheduler.calls == [["qdel", "77.pbs01"]]


def _in_kubernetes(kind: str) -> Submitted:
    return _job("first", scheduler="kubernetes", kind=kind, namespace="default", uid="u1")


def _conditions(*names: str) -> Any:
    return {"conditions": [{"type": name, "status": "True"} for name in names]}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({}, "waiting"),
        ({"active": 1}, "running"),
        (_conditions("Complete"), "done"),
        (_conditions("Failed"), "failed"),
        (_conditions("Created"), "waiting"),
        (_conditions("Created", "Running"), "running"),
        (_conditions("Created", "Running", "Succeeded"), "done"),
        ({"conditions": [{"type": "Failed", "status": "False"}], "active": 1}, "running"),
    ],
)
def test_conditions_of_jobs(status: Any, word: str, scheduler: Any) -> None:
    scheduler.says("Job-first.json", json.dumps({"metadata": {"uid": "u1"}, "status": status}))
    assert kubernetes.observe([_in_kubernetes("Job")]).states["first"].word == word


@pytest.mark.parametrize(
    ("phase", "word"),
    [("Pending", "waiting"), ("Running", "running"), ("Succeeded", "done"), ("Failed", "failed"), ("Odd", "unknown")],
)
def test_ipujob_is_as_its_worker_is(phase: str, word: str, scheduler: Any) -> None:
    scheduler.says("IPUJob-first.json", json.dumps({"metadata": {"uid": "u1"}}))
    assert kubernetes.observe([_in_kubernetes("IPUJob")]).states["first"].word == "waiting"
    pod = {"metadata": {}, "status": {"phase": phase}, "spec": {"nodeName": "gc1"}}
    scheduler.says("pod-first-worker-0.json", json.dumps(pod))
    assert kubernetes.observe([_in_kubernetes("IPUJob")]).states["first"] == JobState(word, phase, "gc1")


def test_job_of_the_same_name_is_not_ours(scheduler: Any) -> None:
    scheduler.says("Job-first.json", json.dumps({"metadata": {"uid": "another"}}))
    assert kubernetes.observe([_in_kubernetes("Job")]).states == {}
    with pytest.raises(JobError, match="does not exist any more"):
        kubernetes.cancel(_in_kubernetes("Job"))
    assert (scheduler.home / "Job-first.json").exists()


def test_kubectl_delete(scheduler: Any) -> None:
    scheduler.says("Job-first.json", json.dumps({"metadata": {"uid": "u1"}}))
    kubernetes.cancel(_in_kubernetes("Job"))
    assert not (scheduler.home / "Job-first.json").exists()


def test_cluster_that_cannot_be_reached(scheduler: Any) -> None:
    scheduler.says("refuse", "The connection to the server was refused")
    observed = kubernetes.observe([_in_kubernetes("Job"), _in_kubernetes("Job")])
    assert observed == ({}, ("kubectl does not reach its server: The connection to the server was refused",))
    assert len(scheduler.calls) == 1


def test_one_job_that_kubectl_does_not_show_hides_no_other(scheduler: Any) -> None:
    scheduler.says("Job-odd.json", "no JSON")
    scheduler.says("Job-first.json", json.dumps({"metadata": {"uid": "u1"}, "status": {"active": 1}}))
    observed = kubernetes.observe([_in_kubernetes("Job")._replace(id="odd"), _in_kubernetes("Job")])
    assert observed == (
        {"first": JobState("running", "active")},
        ("kubectl does not report the state of Job odd: no JSON",),
    )


@pytest.mark.parametrize(
    ("text", "seconds", "in_slurm", "in_pbs"),
    [
        ("90", 5400, "01:30:00", "01:30:00"),
        ("12:00:00", 43200, "12:00:00", "12:00:00"),
        ("1-12:00:30", 129630, "1-12:00:30", "36:00:30"),
        ("100:00:00", 360000, "4-04:00:00", "100:00:00"),
    ],
)
def test_limits_of_time(text: str, seconds: int, in_slurm: str, in_pbs: str) -> None:
    assert time_limit.seconds(text) == seconds
    assert (time_limit.for_slurm(seconds), time_limit.for_pbs(seconds)) == (in_slurm, in_pbs)


def test_record_comes_back(tmp_path: Any) -> None:
    job = _in_kubernetes("IPUJob")
    record.write(tmp_path, job)
    assert record.read(tmp_path) == job


def test_run_without_a_record(tmp_path: Any) -> None:
    assert record.read(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "{}",
        '{"scheduler": "slurm"}',
        json.dumps({**_job()._asdict(), "id": "--all"}),
        json.dumps({**_job()._asdict(), "id": ""}),
        json.dumps({**_job()._asdict(), "id": "1 2"}),
        json.dumps({**_job()._asdict(), "id": ["1"]}),
        json.dumps({**_job()._asdict(), "scheduler": "os"}),
        json.dumps({**_job()._asdict(), "kind": "pods --all"}),
    ],
)
def test_record_from_an_untrusted_place(text: str, tmp_path: Any) -> None:
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(DataError, match="is not the record of a job"):
        record.read(tmp_path)


@pytest.mark.parametrize("name", ["slurm", "kubernetes", "pbs"])
def test_schedulers_are_found_by_name(name: str) -> None:
    assert scheduler_of(name).file_name
