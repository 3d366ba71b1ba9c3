from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set

import pytest

from ipulaunch.configs.errors import JobError, NotReadyError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.engines.command import Command
from ipulaunch.launcher.supervise import processes, stop_signals, supervision
from ipulaunch.launcher.supervise.instance_logs import Echo, InstanceLogs
from ipulaunch.launcher.supervise.stop_signals import SIGNALS, StopSignals
from ipulaunch.launcher.supervise.supervision import Supervisor
from ipulaunch.topology.planning.plan import Plan

pytestmark = pytest.mark.core

FAKES = Path(__file__).parents[3] / "fakes"
ENGINE = (sys.executable, "-IS", str(FAKES / "mpirun.py"))
MOST_LOOKS = 20_000  # of a fiftieth of a second each; bounds a hang
PATIENCE_S = 600.0  # bounds a hang of fakes and instances, which hold on for 900 s
LONGER_S = 3600.0  # never: who hangs ends by itself before, with another exit code


class Trial:
    """Runs the fake engine under a supervisor, in this process."""

    def __init__(self, logs: Callable[..., InstanceLogs]) -> None:
        self.make_logs = logs
        self.looks = 0
        self.seconds = 0.0
        self.on_look: Callable[[], None] = lambda: None
        self.signals = StopSignals()
        self.supervisor = Supervisor(self._look, self.signals)

    def run(self, behaviour: str, echo: Optional[Echo] = None) -> int:
        started = time.monotonic()
        environ = {**os.environ, "FAKE_MPIRUN": behaviour}
        try:
            with self.signals:
                return self.supervisor.run(Command(ENGINE), environ, self.make_logs(echo))
        finally:
            self.seconds = time.monotonic() - started

    def _look(self) -> None:
        self.looks += 1
        assert self.looks < MOST_LOOKS
        self.on_look()


@pytest.fixture()
def trial(run_directory: RunDirectory, make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr(supervision, "GRACE_S", 0.2)
    monkeypatch.setattr(supervision, "LOOK_INTERVAL_S", 0.02)
    return Trial(lambda echo: InstanceLogs(run_directory, make_plan(4, 2), echo))


@pytest.fixture(autouse=True)
def no_other_handlers() -> Iterator[None]:
    """Every test gives back the signal handlers it found."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    after = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


def _is_gone(pid: int) -> bool:
    return not Path("/proc", str(pid)).exists()


def _signal_when(lifeline: Any, count: int, *numbers: signal.Signals) -> Callable[[], None]:
    """Sends ourselves one signal at each look, as soon as so many processes are there."""
    left: List[signal.Signals] = list(numbers)

    def look() -> None:
        if left and len(lifeline.pids()) >= count:
            os.kill(os.getpid(), left.pop(0))

    return look


def test_output_is_taken_apart(trial: Trial, run_directory: RunDirectory) -> None:
    assert trial.run("print") == 0
    assert run_directory.log(0).read_text() == "one\nthree\n"
    assert run_directory.log(1).read_text() == "two\n"
    assert trial.looks > 0


@pytest.mark.parametrize(("behaviour", "code"), [("print", 0), ("crash", 3), ("killed", -9)])
def test_exit_code_is_the_engines(behaviour: str, code: int, trial: Trial) -> None:
    assert trial.run(behaviour) == code
    assert trial.signals.first is None


def test_flood_of_output_is_kept_whole(trial: Trial, run_directory: RunDirectory) -> None:
    assert trial.run("flood") == 0
    assert run_directory.log(0).read_bytes() == 20000 * (60 * b"x" + b"\n")


def test_reader_of_our_output_that_goes_away_stops_nothing(trial: Trial, run_directory: RunDirectory) -> None:
    def echo(who: str, line: str) -> None:
        raise BrokenPipeError

    assert trial.run("flood", echo) == 0
    assert run_directory.log(0).stat().st_size == 20000 * 61


def test_log_that_cannot_be_written_stops_nothing(trial: Trial, run_directory: RunDirectory) -> None:
    run_directory.instance(0).rmdir()
    run_directory.instance(0).touch()
    assert trial.run("flood") == 0


def test_engine_that_is_not_there(trial: Trial, run_directory: RunDirectory) -> None:
    with pytest.raises(NotReadyError, match="does not start"):
        trial.supervisor.run(Command(("/nowhere/mpirun",)), {}, trial.make_logs(None))


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_signal_ends_the_engine(
    number: signal.Signals, trial: Trial, lifeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "GRACE_S", LONGER_S)
    trial.on_look = _signal_when(lifeline, 1, number)
    assert trial.run("hang") == -signal.SIGINT
    assert trial.signals.first == number
    assert lifeline.has_ended()


def test_deaf_engine_is_killed_after_the_grace_time(trial: Trial, lifeline: Any) -> None:
    trial.on_look = _signal_when(lifeline, 1, signal.SIGINT)
    assert trial.run("deaf") == -signal.SIGKILL
    assert lifeline.has_ended()
    assert trial.seconds >= supervision.GRACE_S


def test_a_run_directory_that_goes_with_the_engine_is_told(
    trial: Trial, run_directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks in between: the instances have noticed it as well, and ended the engine."""
    monkeypatch.setattr(supervision, "LOOK_INTERVAL_S", 60.0)
    words = (sys.executable, "-ISc", "import shutil, sys; shutil.rmtree(sys.argv[1])", str(run_directory.path))
    with pytest.raises(JobError, match="has gone while the run went on"):
        trial.supervisor.run(Command(words), os.environ, trial.make_logs(None))


def test_second_signal_ends_at_once(trial: Trial, lifeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "GRACE_S", LONGER_S)
    monkeypatch.setattr(stop_signals, "SAME_REQUEST_S", 0.0)
    trial.on_look = _signal_when(lifeline, 1, signal.SIGTERM, signal.SIGTERM)
    assert trial.run("deaf") == -signal.SIGKILL
    assert lifeline.has_ended()


def test_ctrl_c_twice_within_a_second_ends_at_once(
    trial: Trial, lifeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal sends it once for each key; only schedulers send a request twice."""
    monkeypatch.setattr(supervision, "GRACE_S", LONGER_S)
    monkeypatch.setattr(stop_signals, "SAME_REQUEST_S", LONGER_S)
    pressed: List[float] = []

    def look() -> None:
        is_due = not pressed or time.monotonic() > pressed[0] + stop_signals.SAME_KEY_S
        if len(pressed) < 2 and is_due and lifeline.pids():
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    trial.on_look = look
    assert trial.run("deaf") == -signal.SIGKILL
    assert (trial.signals.requests, len(pressed)) == (2, 2)


def test_when_we_ended_a_run_is_known(trial: Trial, lifeline: Any) -> None:
    before = time.time_ns()
    trial.on_look = _signal_when(lifeline, 1, signal.SIGTERM)
    trial.run("hang")
    assert trial.supervisor.ended_ns is not None and before <= trial.supervisor.ended_ns <= time.time_ns()


def test_a_run_that_stops_by_itself_was_not_ended_by_us(trial: Trial) -> None:
    trial.supervisor.ask_to_stop = lambda number: LONGER_S
    sent: List[int] = []

    def look() -> None:
        if not sent:
            sent.append(1)
            os.kill(os.getpid(), signal.SIGTERM)

    trial.on_look = look
    trial.run("flood")
    assert (trial.signals.first, trial.supervisor.ended_ns) == (signal.SIGTERM, None)


@pytest.mark.parametrize(
    ("numbers", "is_second"),
    [
        pytest.param((signal.SIGTERM, signal.SIGTERM), False, id="twice-at-once"),
        pytest.param((signal.SIGUSR1, signal.SIGUSR1), False, id="USR1-twice-at-once"),
        pytest.param((signal.SIGTERM, signal.SIGINT), True, id="another"),
    ],
)
def test_request_that_arrives_twice_is_one(
    numbers: Sequence[signal.Signals], is_second: bool, trial: Trial, lifeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler signals every process of a job, and the container around ipulaunch hands the signal on."""
    monkeypatch.setattr(stop_signals, "SAME_REQUEST_S", LONGER_S)
    left = list(numbers)

    def look() -> None:
        while left and lifeline.pids():
            os.kill(os.getpid(), left.pop(0))

    trial.on_look = look
    assert trial.run("deaf") == -signal.SIGKILL
    assert trial.signals.first == numbers[0]
    assert trial.signals.requests == 1 + is_second


def test_grace_time_is_told_by_the_clock(trial: Trial, lifeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "GRACE_S", 1000.0)
    hours = iter(range(0, 3600 * MOST_LOOKS, 3600))
    trial.supervisor.clock = lambda: float(next(hours))
    trial.on_look = _signal_when(lifeline, 1, signal.SIGTERM)
    assert trial.run("deaf") == -signal.SIGKILL
    assert lifeline.has_ended()


def test_family_of_the_engine_is_gone(trial: Trial, lifeline: Any) -> None:
    trial.on_look = _signal_when(lifeline, 3, signal.SIGTERM)
    trial.run("family")
    assert lifeline.has_ended()
    pids = lifeline.pids()
    assert len(pids) == 3
    assert [pid for pid in pids if not _is_gone(pid)] == []


def test_nothing_outlives_an_engine_that_ended_well(trial: Trial, lifeline: Any) -> None:
    assert trial.run("orphans") == 0
    assert lifeline.has_ended()
    pids = lifeline.pids()
    assert len(pids) == 2
    assert [pid for pid in pids if not _is_gone(pid)] == []


def test_nothing_outlives_a_display_that_fails(trial: Trial, lifeline: Any) -> None:
    def fail() -> None:
        if len(lifeline.pids()) == 3:
            raise RuntimeError("the display is broken")

    trial.on_look = fail
    with pytest.raises(RuntimeError, match="broken"):
        trial.run("family")
    assert lifeline.has_ended()
    assert [pid for pid in lifeline.pids() if not _is_gone(pid)] == []


def test_ignored_hangup_stays_ignored(trial: Trial, lifeline: Any) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        trial.on_look = _signal_when(lifeline, 1, signal.SIGHUP, signal.SIGTERM)
        trial.run("hang")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert trial.signals.first == signal.SIGTERM


def test_no_thread_is_left(trial: Trial) -> None:
    before = set(threading.enumerate())
    trial.run("print")
    assert set(threading.enumerate()) <= before


def test_end_all_leaves_nothing_below_us() -> None:
    processes.end_all()
    child = subprocess.Popen(["sleep", "3600"])
    assert processes.descendants() == [child.pid]
    processes.end_all()
    assert processes.descendants() == []
    child.wait()


LAUNCH = ("run", "--pod", "4", "--engine", "openmpi", "--num-instances", "2", "--oversubscribe", "--run-dir", "mine")


@pytest.fixture()
def start(fake_mpirun: Path, own_environment: Dict[str, str], lifeline: Any) -> Iterator[Callable[..., Any]]:
    """Starts a launcher in a process of its own, with the fake mpirun or another one."""
    started: List[subprocess.Popen[bytes]] = []

    def make(behaviour: str, *program: str, mpirun: Optional[str] = None) -> subprocess.Popen[bytes]:
        environ = {**own_environment, "FAKE_MPIRUN": behaviour, "LIFELINE": str(lifeline.path)}
        words = [sys.executable, str(FAKES / "launcher.py"), mpirun or str(fake_mpirun), *LAUNCH, "--", *program]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(words, env=environ, stdout=pipe, stderr=pipe, start_new_session=True))
        return started[-1]

    yield make
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("behaviour", "count", "number"),
    [
        pytest.param("hang", 1, signal.SIGINT, id="ctrl-c"),
        pytest.param("hang", 1, signal.SIGTERM, id="term"),
        pytest.param("hang", 1, signal.SIGUSR1, id="usr1"),
        pytest.param("hang", 1, signal.SIGUSR2, id="usr2"),
        pytest.param("deaf", 1, signal.SIGINT, id="ctrl-c-deaf-engine"),
        pytest.param("family", 3, signal.SIGTERM, id="term-family"),
    ],
)
def test_stopped_launcher(
    behaviour: str, count: int, number: signal.Signals, start: Callable[..., Any], lifeline: Any
) -> None:
    process = start(behaviour, "true")
    lifeline.wait_for(count)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"interrupted" in err
    assert lifeline.has_ended()


def test_launcher_whose_terminal_vanishes(
    fake_mpirun: Path, own_environment: Dict[str, str], lifeline: Any, tmp_path: Path
) -> None:
    master, slave = os.openpty()
    environ = {**own_environment, "FAKE_MPIRUN": "hang", "LIFELINE": str(lifeline.path), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, str(FAKES / "launcher.py"), str(fake_mpirun), *LAUNCH, "--", "true"],
        env=environ,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # its hangup is told to who controls it
    )
    os.close(slave)
    try:
        lifeline.wait_for(1)
        os.close(master)
        assert process.wait(timeout=PATIENCE_S) == 130
    finally:
        process.kill()
        process.wait()
    assert lifeline.has_ended()
    assert "interrupted by SIGHUP" in (tmp_path / "mine" / "endings.jsonl").read_text()


def test_killed_launcher_takes_its_engine_along(start: Callable[..., Any], lifeline: Any) -> None:
    process = start("hang", "true")
    lifeline.wait_for(1)
    process.kill()
    assert lifeline.has_ended(PATIENCE_S)


HOLD = (
    "import os, time\n"
    "os.write(os.open(os.environ['LIFELINE'], os.O_WRONLY), b'%d\\n' % os.getpid())\n"
    "print('up', flush=True)\n"
    "time.sleep(900)\n"
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["ctrl-c", "kill"])
def test_instances_of_the_real_engine_end_with_the_launcher(
    number: signal.Signals, code: int, mpirun: str, start: Callable[..., Any], lifeline: Any
) -> None:
    process = start("", sys.executable, "-ISc", HOLD, mpirun=mpirun)
    lifeline.wait_for(2)
    process.send_signal(number)
    assert lifeline.has_ended(PATIENCE_S)  # they would hold it for longer
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code


ASKED = (
    "import os, signal\n"
    "def end(*_):\n"
    "    os.write(1, b'asked\\n')\n"
    "    os._exit(0)\n"
    "signal.signal(signal.SIGTERM, end)\n"
) + HOLD.replace("print('up', flush=True)\n", "")


def _parents(pids: Iterable[int]) -> Set[int]:
    return {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids}


def test_term_to_the_real_engine_and_all_instances_leaves_the_instances_their_time(
    mpirun: str, start: Callable[..., Any], lifeline: Any
) -> None:
    """As a scheduler does that tracks the processes of a job by their cgroup."""
    process = start("", sys.executable, "-ISc", ASKED, mpirun=mpirun)
    instances = lifeline.wait_for(2)
    waiting = _parents(instances)  # what started the programs, and records how they end
    engines = _parents(waiting)
    assert (len(waiting), len(engines)) == (2, 1) and process.pid not in engines
    for pid in [*engines, *waiting, *instances]:
        os.kill(pid, signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert sorted(line for line in out.split(b"\n") if b"asked" in line) == [
        b"localhost:0| asked",
        b"localhost:1| asked",
    ]


def test_one_instance_that_fails_ends_the_others(mpirun: str, start: Callable[..., Any], lifeline: Any) -> None:
    fail = "import os, sys\nif os.environ['OMPI_COMM_WORLD_RANK'] == '1': sys.exit('no data')\n" + HOLD
    process = start("", sys.executable, "-ISc", fail, mpirun=mpirun)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 7
    assert b"localhost:1| no data" in out
    assert b"exit code 7" in err
    assert lifeline.pids() == [] or lifeline.has_ended()
