from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipulaunch.launcher.doctor.case import Case, Place
from ipulaunch.launcher.doctor.leftovers import check_leftovers

WORKER = "python -m ipulaunch.workers cosmoflow --run-dir /r"
MPIRUN = "/opt/bin/python /opt/bin/mpirun -np 1 x"
LAUNCHER = "/opt/bin/python /opt/bin/ipulaunch cosmoflow --pod 16"


def processes(*found: Tuple[int, int, str, int]) -> Dict[str, str]:
    """The kernel's files for processes: id, parent, command, user."""
    files: Dict[str, str] = {}
    for pid, parent, words, user in found:
        files[f"proc/{pid}/status"] = f"Name:\tx\nPPid:\t{parent}\nUid:\t{user}\t{user}\n"
        files[f"proc/{pid}/cmdline"] = words.replace(" ", "\0") + "\0"
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
    found: List[Tuple[int, int, str, int]], lost: str, make_world: Callable[..., Any], tmp_path: Path
) -> None:
    check = check_leftovers(Case(directory=tmp_path), make_world(files=processes(*found)))[0]
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
    records: Tuple[str, ...], state: str, make_run: Callable[..., Path], make_world: Callable[..., Any], tmp_path: Path
) -> None:
    path = make_run("cosmoflow-1", *records)
    check = check_leftovers(Case(directory=tmp_path), make_world())[2]
    assert (check.name, check.state, str(path) in check.found) == ("runs", state, state != "ok")


def test_a_run_that_works_is_no_leftover(
    make_run: Callable[..., Path], make_world: Callable[..., Any], tmp_path: Path
) -> None:
    path = make_run("cosmoflow-1", "", checkpoints=(".update-00000001.77",))
    files = processes((8, 1, LAUNCHER, 1000), (9, 8, WORKER.replace("/r", str(path)), 1000))
    assert [check.state for check in check_leftovers(Case(directory=tmp_path), make_world(files=files))] == ["ok"] * 3


def test_a_program_of_the_users_own_leaves_no_end(
    make_run: Callable[..., Path], make_world: Callable[..., Any], tmp_path: Path
) -> None:
    make_run("program-1", "", job=False)
    assert check_leftovers(Case(directory=tmp_path), make_world())[2].state == "ok"


def test_half_written_checkpoints(
    make_run: Callable[..., Path], make_world: Callable[..., Any], tmp_path: Path
) -> None:
    make_run("a", "done.json", checkpoints=("update-00000001",))
    path = make_run("b", "error.json", checkpoints=("update-00000001", ".update-00000002.77"))
    other = tmp_path / "elsewhere" / ".update-00000009.1"
    other.mkdir(parents=True)
    case = Case(directory=tmp_path, writes=(Place("checkpoints", other.parent, "--checkpoint-output-dir"),))
    check = check_leftovers(case, make_world())[1]
    left = f"{path / 'checkpoints/.update-00000002.77'}, {other}"
    assert (check.state, check.found) == ("warning", f"2 checkpoints half written: {left}")


def test_a_machine_without_proc_has_no_processes(make_world: Callable[..., Any], tmp_path: Path) -> None:
    checks = check_leftovers(Case(directory=tmp_path), make_world(root=tmp_path / "nothing"))
    assert [check.state for check in checks] == ["ok"] * 3
