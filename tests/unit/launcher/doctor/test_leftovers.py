from __future__ import annotations

import os
import platform
import shlex
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipulaunch.launcher.doctor.diagnosis import Diagnosis, UsedDirectory
from ipulaunch.launcher.doctor.leftovers import check_leftovers

WORKER = "python -m ipulaunch.workers cosmoflow --run-dir /r"
MPIRUN = "/opt/bin/python /opt/bin/mpirun -np 1 x"
LAUNCHER = "/opt/bin/python /opt/bin/ipulaunch cosmoflow --pod 16"


def processes(*found: Tuple[int, int, str, int]) -> Dict[str, str]:
    """The kernel's files for processes: id, parent, command, user."""
    files: Dict[str, str] = {}
    for pid, parent, words, user in found:
        files[f"proc/{pid}/stat"] = f"{pid} (x) y) S {parent} 1 1"
        files[f"proc/{pid}/status"] = f"Name:\tx\nUid:\t{user}\t{user}\n"
        files[f"proc/{pid}/cmdline"] = "\0".join(shlex.split(words)) + "\0"
    return files


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        pytest.param([], "", id="none"),
        pytest.param([(10, 1, WORKER, 1000)], "1 instance without a launcher: 10", id="orphan"),
        pytest.param(
            [(10, 1, WORKER, 1000), (12, 9, WORKER, 1000)], "2 instances without a launcher: 10, 12", id="orphans"
        ),
        pytest.param([(10, 1, WORKER, 0)], "", id="of-another-user"),
        pytest.param([(8, 1, LAUNCHER, 1000), (9, 8, MPIRUN, 1000), (10, 9, WORKER, 1000)], "", id="led"),
        pytest.param([(9, 1, "/opt/prted --daemonize", 1000), (10, 9, WORKER, 1000)], "", id="on-another-host"),
        pytest.param([(9, 1, "bash", 1000), (10, 9, WORKER, 1000)], "1 instance", id="by-hand"),
        pytest.param([(9, 10, "bash", 1000), (10, 9, WORKER, 1000)], "1 instance", id="circle"),
        pytest.param([(10, 1, WORKER.replace("workers", "workers.bound"), 1000)], "1 instance", id="program"),
        pytest.param([(10, 1, "less ipulaunch.workers.log2 x", 0)], "", id="other-program"),
    ],
)
def test_instances_without_a_launcher(
    found: List[Tuple[int, int, str, int]], lost: str, make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    check = check_leftovers(Diagnosis(directory=tmp_path), make_environment(files=processes(*found)))[0]
    assert (check.state, lost in check.found) == ("warning" if lost else "ok", True), check
    assert ("kill 10" in check.fix) is bool(lost)


@pytest.fixture()
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """A run that lies here: the last records of its instances, and files of its checkpoints."""

    def make(name: str, *records: str, checkpoints: Tuple[str, ...] = (), job: bool = True) -> Path:
        path = tmp_path / "runs" / name
        for index, record in enumerate(records):
            (path / f"instance-{index:03}").mkdir(parents=True)
            if record:
                (path / f"instance-{index:03}" / record).touch()
        for checkpoint in checkpoints:
            (path / "checkpoints" / checkpoint).mkdir(parents=True)
        path.mkdir(parents=True, exist_ok=True)
        (path / "plan.json").touch()
        if job:
            (path / "job.yaml").touch()
        return path

    return make


@pytest.mark.parametrize(
    ("records", "state"),
    [
        pytest.param(("done.json", "done.json"), "ok", id="done"),
        pytest.param(("done.json", "error.json"), "ok", id="failed"),
        pytest.param(("stopped.json", "stopped.json"), "ok", id="stopped"),
        pytest.param(("done.json", ""), "warning", id="one-open"),
        pytest.param(("", ""), "warning", id="open"),
        pytest.param((), "warning", id="never-started"),
    ],
)
def test_runs_without_an_end(
    records: Tuple[str, ...],
    state: str,
    make_run: Callable[..., Path],
    make_environment: Callable[..., Any],
    tmp_path: Path,
) -> None:
    path = make_run("cosmoflow-1", *records)
    check = check_leftovers(Diagnosis(directory=tmp_path), make_environment())[2]
    assert (check.name, check.state, str(path) in check.found) == ("runs", state, state != "ok")


def test_a_run_that_works_is_no_leftover(
    make_run: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    path = make_run("cosmoflow-1", "", checkpoints=(".update-00000001.77",))
    files = processes((8, 1, LAUNCHER, 1000), (9, 8, WORKER.replace("/r", shlex.quote(str(path))), 1000))
    assert [check.state for check in check_leftovers(Diagnosis(directory=tmp_path), make_environment(files=files))] == [
        "ok"
    ] * 5


@pytest.mark.parametrize(
    ("records", "state"),
    [
        pytest.param(("done.json", "done.json"), "ok", id="done"),
        pytest.param(("", ""), "warning", id="open"),
        pytest.param(("heartbeat", "heartbeat"), "ok", id="on-another-host"),
        pytest.param(None, "ok", id="waits"),
    ],
)
def test_a_submitted_run_has_its_records_inside(
    records: Any, state: str, make_run: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    path = make_run("cosmoflow-1")
    (path / "job.json").touch()
    if records is not None:
        make_run("cosmoflow-1/run", *records)
    check = check_leftovers(Diagnosis(directory=tmp_path), make_environment())[2]
    assert (check.name, check.state, check.fix.startswith(f"ipulaunch resume {shlex.quote(str(path))},")) == (
        "runs",
        state,
        state != "ok",
    )


def test_a_submitted_run_that_works_here_is_no_leftover(
    make_run: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    path = make_run("cosmoflow-1")
    (path / "job.json").touch()
    inside = make_run("cosmoflow-1/run", "", checkpoints=(".update-00000001.77",))
    assert [check.state for check in check_leftovers(Diagnosis(directory=tmp_path), make_environment())[1:3]] == [
        "warning"
    ] * 2
    files = processes((8, 1, LAUNCHER, 1000), (9, 8, WORKER.replace("/r", shlex.quote(str(inside))), 1000))
    assert [check.state for check in check_leftovers(Diagnosis(directory=tmp_path), make_environment(files=files))] == [
        "ok"
    ] * 5


def test_a_link_to_nowhere_is_no_run(make_environment: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "latest").symlink_to("gone")
    assert check_leftovers(Diagnosis(directory=tmp_path), make_environment())[2].state == "ok"


def test_a_program_of_the_users_own_leaves_no_end(
    make_run: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    make_run("program-1", "", job=False)
    assert check_leftovers(Diagnosis(directory=tmp_path), make_environment())[2].state == "ok"


def test_half_written_checkpoints(
    make_run: Callable[..., Path], make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    make_run("a", "done.json", checkpoints=("update-00000001",))
    path = make_run("b", "error.json", checkpoints=("update-00000001", ".update-00000002.77"))
    other = tmp_path / "elsewhere" / ".update-00000009.1"
    other.mkdir(parents=True)
    diagnosis = Diagnosis(
        directory=tmp_path, writes=(UsedDirectory("checkpoints", other.parent, "--checkpoint-output-dir"),)
    )
    check = check_leftovers(diagnosis, make_environment())[1]
    left = f"{path / 'checkpoints/.update-00000002.77'}, {other}"
    assert (check.state, check.found) == ("warning", f"2 checkpoints half written: {left}")


@pytest.mark.parametrize(
    ("mapped", "user", "left"),
    [
        pytest.param(
            "", os.getuid(), "2 MiB of memory that no process uses: sm_segment.a.0, sm_segment.a.1", id="left"
        ),
        pytest.param("7f00-7f01 rw-s 0 0:1 5 /dev/shm/sm_segment.a.0\n", os.getuid(), "1 MiB", id="one-is-used"),
        pytest.param("", os.getuid() + 1, "", id="of-another-user"),
    ],
)
def test_memory_that_instances_shared(
    mapped: str, user: int, left: str, make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    segments = {f"dev/shm/sm_segment.a.{number}": "x" * (1 << 20) for number in (0, 1)}
    files = {**processes((10, 1, WORKER, user)), "proc/10/maps": mapped, "proc/self/status": f"Uid:\t{user}\n"}
    check = check_leftovers(Diagnosis(directory=tmp_path), make_environment(files={**files, **segments}))[3]
    assert (check.state, left in check.found) == ("warning" if left else "ok", True), check


@pytest.mark.parametrize(("environ", "place"), [({}, "tmp"), ({"TMPDIR": "/scratch/me"}, "scratch/me")])
def test_sessions_of_launchers_that_were_killed(
    environ: Dict[str, str], place: str, make_environment: Callable[..., Any], tmp_path: Path
) -> None:
    owner = f'{{"host": "{platform.node()}", "pid": 12}}'
    environment = make_environment(environ=environ, files={f"{place}/ipulaunch-abcdefgh/session.json": owner})
    check = check_leftovers(Diagnosis(directory=tmp_path), environment)[4]
    left = environment.root / place / "ipulaunch-abcdefgh"
    assert (check.state, check.found) == ("warning", f"1 session whose launcher was killed: {left}")
    assert check.fix == "the next run removes it; so does rm -r"


def test_a_machine_without_proc_has_no_processes(make_environment: Callable[..., Any], tmp_path: Path) -> None:
    checks = check_leftovers(Diagnosis(directory=tmp_path), make_environment(root=tmp_path / "nothing"))
    assert [check.state for check in checks] == ["ok"] * 5
