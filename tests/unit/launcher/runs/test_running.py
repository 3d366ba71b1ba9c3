from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.runs import attending, one_attempt, run_files
from ipulaunch.launcher.runs.run_files import new_run_path, run_path
from ipulaunch.launcher.runs.running import run_launch
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise.endings import read_endings
from ipulaunch.launcher.supervise.stop_signals import StopSignals
from ipulaunch.launcher.supervise.verdict import Verdict

Run = Callable[..., Any]
MakeLaunch = Callable[..., Launch]

ENGINE = (sys.executable, "-IS", str(Path(__file__).parents[3] / "fakes" / "mpirun.py"))
JOB = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True).settings)


@pytest.fixture()
def display() -> Display:
    return Display(io.StringIO(), io.StringIO())


def _names(path: Path) -> List[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_named_run_directory(tmp_path: Path) -> None:
    assert new_run_path("cosmoflow", Path("mine")) == tmp_path / "mine"
    assert _names(tmp_path) == []


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_run_directory_that_exists_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.mkdir() if kind == "directory" else path.touch()
    with pytest.raises(UsageError, match="already"):
        new_run_path("cosmoflow", Path("mine"))


def test_run_directories_of_one_second_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files.time, "strftime", lambda form: "20261116-104512")
    names = ["cosmoflow-20261116-104512", "cosmoflow-20261116-104512-2", "cosmoflow-20261116-104512-3"]
    paths = [tmp_path / "runs" / name for name in names]
    with run_path("cosmoflow", None) as first, run_path("cosmoflow", None) as second:
        assert [first, second, new_run_path("cosmoflow", None)] == paths
    assert _names(tmp_path) == []


def test_a_directory_with_a_run_in_it_is_kept(tmp_path: Path) -> None:
    with run_path("cosmoflow", None) as kept:
        (kept / "plan.json").touch()
    assert _names(kept) == ["plan.json"]


def test_so_many_launches_in_one_second_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files.time, "strftime", lambda form: "20261116-104512")
    with contextlib.ExitStack() as launches:
        for _ in range(99):
            launches.enter_context(run_path("a", None))
        with pytest.raises(UsageError, match="98 more names are taken"):
            launches.enter_context(run_path("a", None))
    assert _names(tmp_path) == []


def test_a_place_where_no_run_can_be_made_is_told(ipulaunch: Run, fake_mpirun: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    code, _, err = ipulaunch(*WHERE, "--engine", "openmpi", "--", "true")
    assert (code, "cannot be made: Not a directory" in err) == (2, True)


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        run_launch(make_launch(ENGINE), tmp_path / "file" / "run", display)


@pytest.mark.parametrize(
    ("module", "where", "number"),
    [
        (run_files, "write_whole", errno.ENOSPC),
        (run_files, "make_instances", errno.EDQUOT),
        (one_attempt, "InstanceLogs", errno.EROFS),
    ],
    ids=["no room", "quota", "read only"],
)
def test_a_run_for_which_there_is_no_room_is_not_ready(
    module: Any,
    where: str,
    number: int,
    tmp_path: Path,
    make_launch: MakeLaunch,
    display: Display,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, where, fail)
    with pytest.raises(NotReadyError, match=f"cannot be written: {os.strerror(number)}") as error:
        run_launch(make_launch(ENGINE, job=JOB), tmp_path / "run", display)
    assert error.value.hint.startswith("make it writable" if number == errno.EROFS else "make room there")
    assert (tmp_path / "run").exists() == (where == "InstanceLogs")


def test_a_place_that_may_not_be_written_is_not_ready(
    tmp_path: Path, make_launch: MakeLaunch, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(NotReadyError, match="cannot be written: Permission denied"):
        run_launch(make_launch(ENGINE), tmp_path / "run", display)


def _job_with(**survival: Any) -> Job:
    settings = JOB.settings
    return JOB._replace(
        settings=dataclasses.replace(settings, survival=dataclasses.replace(settings.survival, **survival))
    )


@pytest.mark.parametrize("is_asking", [False, True], ids=["pause", "asking hosts"])
@pytest.mark.parametrize(
    ("number", "most", "code"),
    [(signal.SIGTERM, 100, 75), (signal.SIGUSR1, 100, 75), (signal.SIGINT, 100, 130), (signal.SIGTERM, 0, 7)],
)
def test_a_run_that_is_stopped_before_a_restart(
    number: signal.Signals,
    most: int,
    code: int,
    is_asking: bool,
    tmp_path: Path,
    make_launch: MakeLaunch,
    display: Display,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = _job_with(max_restarts=2, restart_backoff_s=0.0 if is_asking else 3600.0, max_preemptions=most)
    run = RunDirectory(tmp_path / "run")

    def fail(launch: Launch, run: RunDirectory, display: Display, signals: StopSignals) -> Tuple[Verdict, int]:
        run.error(0).write_text('{"time_ns": 1, "type": "ValueError", "message": "bad", "exit_code": 7}')
        if not is_asking:
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        return Verdict(7, "it broke"), 3

    def ask(launch: Launch, path: Path) -> Dict[str, str]:
        os.kill(os.getpid(), number)
        time.sleep(60)
        raise AssertionError("a signal ends the asking")

    monkeypatch.setattr(attending, "run_attempt", fail)
    monkeypatch.setattr(attending, "unready_hosts", ask)
    assert run_launch(make_launch(ENGINE, job=job), run.path, display) == code
    said = f"interrupted by {number.name}: in the pause before restart 1 of 2; there is no checkpoint yet"
    assert said in display.stream.getvalue()  # type: ignore[attr-defined]
    endings = read_endings(run)
    assert [(ending.attempt, ending.exit_code) for ending in endings] == [(1, 7), (1, code)]
    assert endings[1].headline.startswith(said)


def test_waits_before_restarts_begin_anew_when_a_run_gets_further(
    tmp_path: Path, make_launch: MakeLaunch, display: Display, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = iter([3, 3, 0, 4, 4])
    slept: List[float] = []
    monkeypatch.setattr(attending, "run_attempt", lambda *_: (Verdict(7, "it broke"), next(reached)))
    monkeypatch.setattr(attending, "unready_hosts", lambda *_: {})
    monkeypatch.setattr(time, "sleep", slept.append)
    job = _job_with(max_restarts=4, restart_backoff_s=5.0)
    assert run_launch(make_launch(ENGINE, job=job), tmp_path / "run", display) == 7
    assert slept == [5.0, 10.0, 20.0, 5.0]


WHERE = ("run", "--pod", "4", "--host-layout", "1x4")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(("--num-instances", "3", "--engine", "openmpi", "--", "true"), 3, id="plan"),
        pytest.param(("--engine", "openmpi", "--hosts", "a,,b", "--", "true"), 2, id="hosts"),
        pytest.param(
            (
                "--engine",
                "openmpi",
            ),
            2,
            id="no-program",
        ),
        pytest.param(("--engine", "openmpi", "--env", "NOT_SET", "--", "true"), 2, id="variable"),
        pytest.param(("--engine", "openmpi", "--env", "HF_TOKEN=x", "--", "true"), 2, id="secret"),
        pytest.param(("--engine", "openmpi", "--mpi-global-args", "'open", "--", "true"), 2, id="open-quote"),
        pytest.param(("--engine", "poprun", "--", "true"), 4, id="no-poprun"),
        pytest.param(("--engine", "poprun", "--sdk-version", "1.0", "--", "true"), 2, id="sdk"),
    ],
)
def test_refused_launch_leaves_nothing_behind(
    words: Tuple[str, ...], code: int, ipulaunch: Run, fake_mpirun: Path, tmp_path: Path
) -> None:
    assert ipulaunch(*WHERE, *words).code == code
    assert _names(tmp_path) == ["bin"]


@pytest.mark.parametrize(("name", "hint"), [("A_TOKEN", "export A_TOKEN first"), ("A_PATH", "--env A_PATH=VALUE")])
def test_hint_for_a_variable_that_is_not_set_is_of_use(name: str, hint: str, ipulaunch: Run, fake_mpirun: Path) -> None:
    code, _, err = ipulaunch(*WHERE, "--engine", "openmpi", "--env", name, "--", "true")
    assert code == 2 and hint in err and "A_TOKEN=VALUE" not in err


@pytest.mark.parametrize("words", [("run", "--", "true"), ("cosmoflow",)], ids=["program", "workload"])
def test_existing_run_directory_is_not_touched(
    words: Tuple[str, ...], ipulaunch: Run, fake_mpirun: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    options = ("--pod", "4", "--engine", "openmpi", "--host-layout", "1x4", "--run-dir", "mine")
    code, out, err = ipulaunch(words[0], *options, *words[1:])
    assert (code, out) == (2, "")
    assert "there is a directory mine already" in err
    assert _names(tmp_path / "mine") == []


def test_dry_run_makes_no_directory(ipulaunch: Run, fake_mpirun: Path, tmp_path: Path) -> None:
    assert ipulaunch(*WHERE, "--engine", "openmpi", "--dry-run", "--run-dir", "mine", "--", "true").code == 0
    assert _names(tmp_path) == ["bin"]
