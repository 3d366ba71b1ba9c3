from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, Callable, List, Tuple

import pytest

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.job import Job, from_yaml
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.workloads import resolve
from ipulaunch.launcher import running
from ipulaunch.launcher.command import Command
from ipulaunch.launcher.display import Display
from ipulaunch.launcher.launch import Launch
from ipulaunch.launcher.running import carry_out, new_run_path
from ipulaunch.topology.plan import from_json

Run = Callable[..., Any]
MakeLaunch = Callable[..., Launch]

ENGINE = (sys.executable, "-IS", str(Path(__file__).parents[1] / "fakes" / "mpirun.py"))
JOB = Job("cosmoflow", "cpu", resolve("cosmoflow", rehearsal=True).settings)
LEAVES_DONE = """
import os, sys
for path in sys.argv[1:]:
    os.makedirs(path, exist_ok=True)
    open(os.path.join(path, "done.json"), "w").close()
"""


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
    monkeypatch.setattr(running.time, "strftime", lambda form: "20261116-104512")
    found = []
    for _ in range(3):
        found.append(new_run_path("cosmoflow", None))
        found[-1].mkdir(parents=True, exist_ok=True)
    names = ["cosmoflow-20261116-104512", "cosmoflow-20261116-104512-2", "cosmoflow-20261116-104512-3"]
    assert found == [tmp_path / "runs" / name for name in names]


def test_contents_of_a_run(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    path = tmp_path / "deep" / "er" / "run"
    launch = make_launch([*ENGINE, "--flag", "two words"])
    assert carry_out(launch, path, display) == 0
    run = RunDirectory(path)
    assert _names(path) == ["command.txt", "engine.txt", "instance-000", "instance-001", "plan.json"]
    assert from_json(run.plan.read_text(encoding="utf-8")) == launch.solution.plan
    assert run.command.read_text(encoding="utf-8") == launch.command.shell() + "\n"
    assert run.log(0).read_text() == "one\nthree\n"
    assert run.log(1).read_text() == "two\n"
    assert (path / "engine.txt").read_text() == "words of the engine\n"


def test_job_of_a_workload_is_written(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    carry_out(make_launch(ENGINE, job=JOB), tmp_path / "run", display)
    assert from_yaml((tmp_path / "run" / "job.yaml").read_text(encoding="utf-8"), "job.yaml") == JOB


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_look_into_a_run(umask: int, tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    before = os.umask(umask)
    try:
        carry_out(make_launch(ENGINE), tmp_path / "run", display)
    finally:
        os.umask(before)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--api-key=hunter2",), id="option"),
        pytest.param(("-x", "HF_TOKEN=hunter2"), id="variable"),
        pytest.param(("--mpi-local-args=-x HF_TOKEN=hunter2",), id="mpi-args"),
        pytest.param(("/bin/sh", "-c", "exec prog : --password hunter2"), id="guarded"),
    ],
)
def test_secrets_are_not_recorded(
    words: Tuple[str, ...], tmp_path: Path, make_launch: MakeLaunch, display: Display
) -> None:
    carry_out(make_launch([*ENGINE, *words]), tmp_path / "run", display)
    assert "hunter2" not in (tmp_path / "run" / "command.txt").read_text(encoding="utf-8")


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        carry_out(make_launch(ENGINE), tmp_path / "file" / "run", display)


@pytest.mark.parametrize(
    ("behaviour", "code", "said"),
    [
        pytest.param("print", 0, "done in", id="good"),
        pytest.param("crash", 7, "exit code 3", id="crash"),
        pytest.param("killed", 7, "exit code 7", id="killed"),
    ],
)
def test_exit_code_of_a_program(
    behaviour: str,
    code: int,
    said: str,
    tmp_path: Path,
    make_launch: MakeLaunch,
    display: Display,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_MPIRUN", behaviour)
    assert carry_out(make_launch(ENGINE), tmp_path / "run", display) == code
    assert said in display.stream.getvalue()  # type: ignore[attr-defined]


def test_workload_must_leave_its_records(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    assert carry_out(make_launch(ENGINE, job=JOB), tmp_path / "bad", display) == 7
    assert "done.json (2 of 2 have none)" in display.stream.getvalue()  # type: ignore[attr-defined]
    instances = [str(RunDirectory(tmp_path / "good").instance(index)) for index in range(2)]
    words = [sys.executable, "-IS", "-c", LEAVES_DONE, *instances]
    assert carry_out(make_launch(words, job=JOB), tmp_path / "good", display) == 0


@pytest.mark.parametrize("verbose", [False, True], ids=["quiet", "verbose"])
def test_output_of_a_workload_is_shown_on_request(verbose: bool, tmp_path: Path, make_launch: MakeLaunch) -> None:
    display = Display(io.StringIO(), io.StringIO(), verbose)
    carry_out(make_launch(ENGINE, job=JOB), tmp_path / "run", display)
    lines = display.output.getvalue().splitlines()  # type: ignore[attr-defined]
    shown = ["localhost:0| one", "localhost:1| two", "localhost:0| three"]
    assert lines == (shown if verbose else [])


def test_variables_reach_the_engine(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    show = "import os; print('[1,0]<stdout>: ' + os.environ['GIVEN'] + os.environ['LOGNAME_OF_TEST'])"
    command = Command((sys.executable, "-IS", "-c", show), {"GIVEN": "a b"})
    os.environ["LOGNAME_OF_TEST"] = "!"
    try:
        carry_out(make_launch([], command=command), tmp_path / "run", display)
    finally:
        del os.environ["LOGNAME_OF_TEST"]
    assert RunDirectory(tmp_path / "run").log(0).read_text() == "a b!\n"


WHERE = ("run", "--pod", "4", "--host-layout", "1x4")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(("--num-instances", "3", "--engine", "openmpi", "--", "prog"), 3, id="plan"),
        pytest.param(("--engine", "openmpi", "--hosts", "a,,b", "--", "prog"), 2, id="hosts"),
        pytest.param(
            (
                "--engine",
                "openmpi",
            ),
            2,
            id="no-program",
        ),
        pytest.param(("--engine", "openmpi", "--env", "NOT_SET", "--", "prog"), 2, id="variable"),
        pytest.param(("--engine", "openmpi", "--env", "HF_TOKEN=x", "--", "prog"), 2, id="secret"),
        pytest.param(("--engine", "openmpi", "--mpi-global-args", "'open", "--", "prog"), 2, id="open-quote"),
        pytest.param(("--engine", "poprun", "--", "prog"), 4, id="no-poprun"),
        pytest.param(("--engine", "poprun", "--sdk-version", "1.0", "--", "prog"), 2, id="sdk"),
    ],
)
def test_refused_launch_leaves_nothing_behind(
    words: Tuple[str, ...], code: int, ipulaunch: Run, fake_mpirun: Path, tmp_path: Path
) -> None:
    assert ipulaunch(*WHERE, *words).code == code
    assert _names(tmp_path) == ["bin"]


@pytest.mark.parametrize("words", [("run", "--", "prog"), ("cosmoflow",)], ids=["program", "workload"])
def test_existing_run_directory_is_not_touched(
    words: Tuple[str, ...], ipulaunch: Run, fake_mpirun: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    options = ("--pod", "4", "--engine", "openmpi", "--host-layout", "1x4", "--run-dir", "mine")
    code, out, err = ipulaunch(words[0], *options, *words[1:])
    assert (code, out) == (2, "")
    assert "there is a run directory mine already" in err
    assert _names(tmp_path / "mine") == []


def test_dry_run_makes_no_directory(ipulaunch: Run, fake_mpirun: Path, tmp_path: Path) -> None:
    assert ipulaunch(*WHERE, "--engine", "openmpi", "--dry-run", "--run-dir", "mine", "--", "prog").code == 0
    assert _names(tmp_path) == ["bin"]


def test_command_that_was_run_is_the_one_that_was_printed(ipulaunch: Run, fake_mpirun: Path, tmp_path: Path) -> None:
    words = (*WHERE, "--engine", "openmpi")
    printed = ipulaunch(*words, "--dry-run", "--", "prog", "a b").out
    assert ipulaunch(*words, "--run-dir", "mine", "--", "prog", "a b").code == 0
    assert (tmp_path / "mine" / "command.txt").read_text(encoding="utf-8") == printed
