from __future__ import annotations

import dataclasses
import io
import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import Event, Training, Update
from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.launch.launch import Launch
from ipulaunch.launcher.report.page import is_possible
from ipulaunch.launcher.runs import attending, one_attempt, run_files
from ipulaunch.launcher.runs.run_files import run_path
from ipulaunch.launcher.runs.running import run_launch
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.show.live_display import LiveDisplay
from ipulaunch.launcher.supervise import supervision
from ipulaunch.launcher.supervise.endings import read_endings
from ipulaunch.topology.planning.plan import from_json

Run = Callable[..., Any]
MakeLaunch = Callable[..., Launch]

ENGINE = (sys.executable, "-IS", str(Path(__file__).parents[3] / "fakes" / "mpirun.py"))
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


def test_a_launch_without_a_name_beside_another_one_that_still_plans(
    ipulaunch: Run, fake_mpirun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files.time, "strftime", lambda form, *_: "20261116-104512")
    with run_path("program", None):
        assert ipulaunch(*WHERE, "--engine", "openmpi", "--", "true").code == 0
    assert _names(tmp_path / "runs") == ["program-20261116-104512-2"]


def test_contents_of_a_run(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    path = tmp_path / "deep" / "er" / "run"
    launch = make_launch([*ENGINE, "--flag", "two words"])
    assert run_launch(launch, path, display) == 0
    run = RunDirectory(path)
    assert _names(path) == [
        "asked.json",
        "command.txt",
        "endings.jsonl",
        "engine.txt",
        "instance-000",
        "instance-001",
        "launcher.json",
        "plan.json",
        *(["report.html"] if is_possible() else []),
    ]
    assert from_json(run.plan.read_text(encoding="utf-8")) == launch.solution.plan
    assert run.command.read_text(encoding="utf-8") == launch.command.shell() + "\n"
    assert run.log(0).read_text() == "one\nthree\n"
    assert run.log(1).read_text() == "two\n"
    assert (path / "engine.txt").read_text() == "words of the engine\n"


def test_job_of_a_workload_is_written(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    run_launch(make_launch(ENGINE, job=JOB), tmp_path / "run", display)
    assert from_yaml((tmp_path / "run" / "job.yaml").read_text(encoding="utf-8"), "job.yaml") == JOB


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_look_into_a_run(umask: int, tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    before = os.umask(umask)
    try:
        run_launch(make_launch(ENGINE), tmp_path / "run", display)
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
    run_launch(make_launch([*ENGINE, *words]), tmp_path / "run", display)
    assert "hunter2" not in (tmp_path / "run" / "command.txt").read_text(encoding="utf-8")


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
    assert run_launch(make_launch(ENGINE), tmp_path / "run", display) == code
    assert said in display.stream.getvalue()  # type: ignore[attr-defined]


def test_workload_must_leave_its_records(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    assert run_launch(make_launch(ENGINE, job=JOB), tmp_path / "bad", display) == 7
    assert "done.json (2 of 2 have none)" in display.stream.getvalue()  # type: ignore[attr-defined]
    instances = [str(RunDirectory(tmp_path / "good").instance(index)) for index in range(2)]
    words = [sys.executable, "-IS", "-c", LEAVES_DONE, *instances]
    assert run_launch(make_launch(words, job=JOB), tmp_path / "good", display) == 0


SAYS_LITTLE = """
import os, sys, time
path = sys.argv[1]
open(os.path.join(path, "events.jsonl"), "w").close()
os.kill(os.getppid(), int(sys.argv[2]))
time.sleep(300)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)])
@pytest.mark.parametrize("kept", [None, 8], ids=["no checkpoint", "checkpoint"])
def test_a_run_without_an_update_can_be_started_again(
    number: signal.Signals, code: int, kept: Optional[int], tmp_path: Path, make_launch: MakeLaunch, display: Display
) -> None:
    """An earlier attempt may have left a checkpoint; the present one has nothing to add to it."""
    run = RunDirectory(tmp_path / "run")
    settings = JOB.settings
    if kept is not None:
        place = tmp_path / "checkpoints"
        (place / f"update-{kept:08}").mkdir(parents=True)
        settings = dataclasses.replace(
            settings, training=dataclasses.replace(settings.training, checkpoint_output_dir=str(place))
        )
    words = [sys.executable, "-IS", "-c", SAYS_LITTLE, str(run.instance(0)), str(int(number))]
    assert run_launch(make_launch(words, job=JOB._replace(settings=settings)), run.path, display) == code
    said = display.stream.getvalue()  # type: ignore[attr-defined]
    assert f"interrupted by {number.name}: every instance was ended; " in said
    assert ("from the checkpoint of update 8" if kept else "there is no checkpoint yet") in said
    assert [ending.exit_code for ending in read_endings(run)] == [code]


STOPS_AS_ASKED = """
import os, sys, time
record, number, stop, *instances = sys.argv[1:]
with open(os.path.join(instances[0], "events.jsonl"), "w") as file:
    file.write(record + "\\n")
os.kill(os.getppid(), int(number))
deadline = time.monotonic() + 300
while not os.path.exists(stop) and time.monotonic() < deadline:
    time.sleep(0.01)
for path in instances:
    with open(os.path.join(path, "stopped.json"), "w") as file:
        file.write('{"message": "stopped after update 1"}')
"""


@pytest.mark.parametrize(
    ("backend", "event", "after"),
    [
        ("cpu", Update(1, 2.0, {}), "this update"),
        ("ipu", Training(36, 1, 9, 0, 0), "this call of the device"),
    ],
)
def test_a_signal_on_the_heels_of_the_first_update(
    backend: str,
    event: Event,
    after: str,
    tmp_path: Path,
    make_launch: MakeLaunch,
    display: Display,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Updates are fast and looks are slow, or seldom: what has not been seen yet is kept as well."""
    monkeypatch.setattr(supervision, "LOOK_INTERVAL_S", 0.5)
    run = RunDirectory(tmp_path / "run")
    words = [sys.executable, "-IS", "-c", STOPS_AS_ASKED, json.dumps({"time_ns": 1, **event.to_json()})]
    words += map(str, (int(signal.SIGTERM), run.stop, run.instance(0), run.instance(1)))
    assert run_launch(make_launch(words, job=JOB._replace(backend=backend)), run.path, display) == 75
    said = display.stream.getvalue()  # type: ignore[attr-defined]
    assert f"SIGTERM: stopping after {after}, then writing a checkpoint (at most " in said
    assert "stopped after update 1" in said


def test_a_training_whose_terminal_vanishes_stops_with_a_checkpoint(
    tmp_path: Path, make_launch: MakeLaunch, terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "run")
    record = {"time_ns": 1, **Update(1, 2.0, {}).to_json()}
    words = [sys.executable, "-IS", "-c", STOPS_AS_ASKED, json.dumps(record)]
    words += map(str, (int(signal.SIGHUP), run.stop, run.instance(0), run.instance(1)))
    display = LiveDisplay(terminal.stream, terminal.stream)
    stopping = display.stopping

    def vanish(name: str, after: str, grace_s: float) -> None:
        terminal.vanish()
        stopping(name, after, grace_s)

    monkeypatch.setattr(display, "stopping", vanish)
    assert run_launch(make_launch(words, job=JOB), run.path, display) == 75
    assert "stopped after update 1" in read_endings(run)[0].headline


def _job_with(**survival: Any) -> Job:
    settings = JOB.settings
    return JOB._replace(
        settings=dataclasses.replace(settings, survival=dataclasses.replace(settings.survival, **survival))
    )


@pytest.mark.parametrize(("most", "codes"), [(0, [7]), (1, [7, 75])], ids=["no restart", "restart"])
def test_a_signal_while_the_hosts_of_a_failed_run_are_asked(
    most: int,
    codes: List[int],
    tmp_path: Path,
    make_launch: MakeLaunch,
    display: Display,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run failed before: its verdict says so, and it is not started again."""

    def ask(launch: Launch, path: Path) -> Dict[str, str]:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        raise AssertionError("a signal ends the asking")

    monkeypatch.setattr(one_attempt, "unready_hosts", ask)
    monkeypatch.setattr(attending, "newest_update", lambda run, job: 1)
    monkeypatch.setenv("FAKE_MPIRUN", "crash")
    run = RunDirectory(tmp_path / "run")
    job = _job_with(max_restarts=most, restart_backoff_s=3600.0)
    assert run_launch(make_launch(ENGINE, job=job), run.path, display) == codes[-1]
    assert [ending.exit_code for ending in read_endings(run)] == codes
    assert "the engine ended with exit code 3" in display.stream.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("verbose", [False, True], ids=["quiet", "verbose"])
def test_output_of_a_workload_is_shown_on_request(verbose: bool, tmp_path: Path, make_launch: MakeLaunch) -> None:
    display = Display(io.StringIO(), io.StringIO(), verbose)
    run_launch(make_launch(ENGINE, job=JOB), tmp_path / "run", display)
    lines = display.output.getvalue().splitlines()  # type: ignore[attr-defined]
    shown = ["localhost:0| one", "localhost:1| two", "localhost:0| three"]
    assert lines == (shown if verbose else [])


def test_variables_reach_the_engine(tmp_path: Path, make_launch: MakeLaunch, display: Display) -> None:
    show = "import os; print('[1,0]<stdout>: ' + os.environ['GIVEN'] + os.environ['LOGNAME_OF_TEST'])"
    command = Command((sys.executable, "-IS", "-c", show), {"GIVEN": "a b"})
    os.environ["LOGNAME_OF_TEST"] = "!"
    try:
        run_launch(make_launch([], command=command), tmp_path / "run", display)
    finally:
        del os.environ["LOGNAME_OF_TEST"]
    assert RunDirectory(tmp_path / "run").log(0).read_text() == "a b!\n"


WHERE = ("run", "--pod", "4", "--host-layout", "1x4")


def test_command_that_was_run_is_the_one_that_was_printed(ipulaunch: Run, fake_mpirun: Path, tmp_path: Path) -> None:
    words = (*WHERE, "--engine", "openmpi")
    printed = ipulaunch(*words, "--dry-run", "--", "true", "a b").out
    assert ipulaunch(*words, "--run-dir", "mine", "--", "true", "a b").code == 0
    recorded = (tmp_path / "mine" / "command.txt").read_text(encoding="utf-8")
    for of_a_run in (
        f" --run-dir {shlex.quote(str(tmp_path / 'mine'))}",
        "IPULAUNCH_ATTEMPT=1 ",
        " -x IPULAUNCH_ATTEMPT",
    ):
        assert of_a_run in recorded and of_a_run not in printed
        recorded = recorded.replace(of_a_run, "")
    assert recorded == printed
