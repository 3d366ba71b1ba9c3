from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Set

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.instance_logs import InstanceLogs
from ipulaunch.launcher.supervise.session_files import left_sessions, own_session, segments_of
from ipulaunch.launcher.supervise.stop_signals import StopSignals
from ipulaunch.launcher.supervise.supervision import Supervisor
from ipulaunch.topology.planning.plan import Plan

Start = Callable[..., int]


@pytest.fixture()
def start(
    mpirun: str, own_environment: Dict[str, str], run_directory: RunDirectory, make_plan: Callable[..., Plan]
) -> Start:
    """Runs an mpirun under a supervisor; returns its exit code."""

    def run(*words: str, is_hung: Callable[[], bool] = lambda: False, **environ: str) -> int:
        allowed = [] if os.getuid() else ["--allow-run-as-root"]
        command = Command((mpirun, *allowed, *words), environ)
        logs = InstanceLogs(run_directory, make_plan(4, 2))
        return Supervisor(lambda: None, StopSignals(), is_hung=is_hung).run(command, own_environment, logs)

    return run


@pytest.mark.parametrize("with_files", [True, False])
def test_temporary_files_of_instances_go_with_the_session_on_request(with_files: bool, tmp_path: Path) -> None:
    with own_session({"TMPDIR": str(tmp_path)}, with_files=with_files) as session:
        (place,) = tmp_path.glob("ipulaunch-*")
        assert session.get("TMPDIR") == (str(place) if with_files else None)
        (place / "left behind").touch()
    assert list(tmp_path.iterdir()) == []


def test_an_mpirun_that_was_killed_leaves_no_session(start: Start, tmp_path: Path) -> None:
    place = tmp_path / "t"
    place.mkdir()
    seen: List[Path] = []

    def is_hung() -> bool:
        seen[:] = [path for path in place.glob("*/ompi.*") if any(path.glob("pmix.*"))]
        return bool(seen)

    assert start("-np", "1", "sleep", "3600", is_hung=is_hung, TMPDIR=str(place)) == -9
    assert seen and list(place.iterdir()) == []


def test_sessions_that_others_have_left_are_in_nobodys_way(start: Start, tmp_path: Path) -> None:
    """An mpirun that finds a session of its own number would not start."""
    place = tmp_path / "t"
    last = int(subprocess.run(["sh", "-c", "echo $$"], stdout=subprocess.PIPE, check=True).stdout)
    for number in range(last, last + 300):
        (place / f"ompi.{number}").mkdir(parents=True)
        (place / f"ompi.{number}" / "pmix.vm.tool").touch()
    assert start("-np", "1", "true", TMPDIR=str(place)) == 0


def test_instances_that_were_killed_leave_no_shared_memory(start: Start) -> None:
    seen: Set[Path] = set()

    def is_hung() -> bool:
        seen.update(path for pid in processes.descendants() for path in segments_of(pid))
        return len(seen) >= 2

    program = [sys.executable, "-c", "from mpi4py import MPI; import time; time.sleep(3600)"]
    code = start("-np", "2", "--oversubscribe", *program, is_hung=is_hung)
    if code == 0 and not seen:
        pytest.skip("this Open MPI keeps its shared memory elsewhere")
    assert (code, len(seen)) == (-9, 2)
    assert not any(path.exists() for path in seen)


def test_the_next_launcher_removes_what_one_that_was_killed_has_left(tmp_path: Path) -> None:
    """One that lives keeps its place, which its lock tells, also from other namespaces of processes."""
    code = (
        "import os, signal; from ipulaunch.launcher.supervise.session_files import own_session\n"
        f"with own_session({{'TMPDIR': {str(tmp_path)!r}}}): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    (left,) = tmp_path.iterdir()
    (left / "ompi.12").mkdir()
    with own_session({"TMPDIR": str(tmp_path)}) as first:
        assert not left.exists() and left_sessions(tmp_path) == []
        with own_session({"TMPDIR": str(tmp_path)}) as second:
            assert sorted(tmp_path.iterdir()) == sorted(Path(*place.values()) for place in (first, second))
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = f'{{"host": "{platform.node()}", "pid": 12}}'
    for name, file, text in (
        ("ipulaunch-run", "launcher.json", gone),
        ("ipulaunch-other", "session.json", '{"host": "elsewhere", "pid": 12}'),
        ("ipulaunch-begun", "session.json", ""),
        ("mine", "session.json", gone),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    (tmp_path / "ipulaunch-link").symlink_to("mine")
    (tmp_path / "ipulaunch-file").touch()
    with own_session({"TMPDIR": str(tmp_path)}):
        pass
    assert len(list(tmp_path.iterdir())) == 6
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    (tmp_path / "mine").rename(tmp_path / "ipulaunch-mine")
    assert left_sessions(tmp_path) == []


def test_a_full_disk_keeps_nobody_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with own_session({"TMPDIR": str(tmp_path)}) as session:
        assert list(session.values()) == [str(path) for path in tmp_path.iterdir()]
    assert list(tmp_path.iterdir()) == []
