"""Trainings over real Open MPI that something happens to, and the undisturbed one as the oracle.

The launcher, Open MPI and the workers are the real ones. The light worker does without TensorFlow, see
light/tensorflow/__init__.py; the real one imports it in every instance, which takes most of the time of a trial. A
trial of an "unresumed" worker is one of the real worker that ends with the verdict.

FAULT_ROUNDS=3 runs every row of the table so often on the real worker, and prints the table; FAULT_TABLE=FILE also
writes it into that file, in the place of the one that it holds. Seconds are measured, and judged, there alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import pytest

from ipulaunch.configs.runs.checkpoints import found_in
from ipulaunch.workers.state import checkpoints

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
IPULAUNCH = [sys.executable, "-m", "ipulaunch.launcher"]
SITE, LIGHT = (Path(__file__).parent / name for name in ("site", "light"))
MARK = "FAULT_RUN"  # in the environment of every process of a trial
UPDATES = 144  # of a few milliseconds, with a checkpoint every 24
LONGEST_S = 1800.0  # so that nothing waits for ever; nothing is expected to take as long
Faults = List[Dict[str, Any]]
_measured: Dict[str, List[Tuple[int, float, bool]]] = {}


class Outcome(NamedTuple):
    """How a trial ended."""

    code: int
    said: str
    seconds: float  # from the fault to the end of the launcher and all that it started

    def line(self, label: str) -> Optional[str]:
        found = [line[len(label) :] for line in self.said.splitlines() if line.startswith(label)]
        return found[-1] if found else None


class Trial:
    """One run, in a directory of its own."""

    def __init__(self, directory: Path, volumes: Path, worker: str, compiled: Path) -> None:
        self.directory, self.volumes, self.worker, self.compiled = directory, volumes, worker, compiled
        self.run = directory / "run"
        self.checkpoints = self.run

    def job(self, instances: int) -> List[str]:
        words = ["cosmoflow", "--pod", "4", "--num-instances", str(instances), "--oversubscribe", "--engine", "openmpi"]
        words += ["--num-epochs", "24", "--logs-per-epoch", "1/4", "--ckpts-per-epoch", "1/4"]
        words += ["--optimizer", "sgd", "--momentum", "0.9", "--learning-rate", "0.01"]
        words += ["--data-dir", str(self.volumes), "--run-dir", str(self.run)]
        sizes = ("data.side=4", "data.n_train=24", "data.n_valid=5", "model.n_conv_layers=1", "model.conv_size=1")
        return words + [word for text in (*sizes, "model.fc1_size=4", "model.fc2_size=4") for word in ("--set", text)]

    def start(self, *options: str, faults: Faults = [], instances: int = 2) -> subprocess.Popen[str]:  # noqa: B006
        meant = [{**fault, "record": str(self.record(i)), "run": str(self.run)} for i, fault in enumerate(faults)]
        return self._start(*self.job(instances), *options, FAULTS=json.dumps(meant))

    def _start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        path = [SITE, LIGHT] if self.worker == "light" else [SITE]
        environ = {**os.environ, MARK: str(self.run), "PYTHONPATH": os.pathsep.join(map(str, path)), **environ}
        if self.worker == "light" and sys.dont_write_bytecode:  # or every process would compile all of its modules
            environ.update(PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=str(self.compiled))
        return subprocess.Popen(
            [*IPULAUNCH, *words], cwd=self.directory, env=environ, stdout=pipe, stderr=pipe, text=True
        )

    def record(self, fault: int) -> Path:
        """Where a fault notes its time."""
        return self.directory / f"fault-{fault}"

    def ended(self, process: subprocess.Popen[str]) -> str:
        """What the launcher said until its end."""
        try:
            _, said = process.communicate(timeout=LONGEST_S)
        finally:
            process.kill()
            process.communicate()
        return said

    def disturbed(self, *options: str, faults: Faults, instances: int = 2, ends_later: bool = False) -> Outcome:
        """Run until a fault ends it; no process is left then, or after a while."""
        outcome = self.tried(*options, faults=faults, instances=instances, ends_later=ends_later)
        assert outcome is not None, "it ended before the fault"
        return outcome

    def tried(self, *options: str, faults: Faults, instances: int = 2, ends_later: bool = False) -> Optional[Outcome]:
        """The same; nothing where something else has ended it before the fault."""
        process = self.start(*options, faults=faults, instances=instances)
        said = self.ended(process)
        if not self.record(0).exists():
            print(said)  # which a test that fails shows
            return None
        deadline = time.monotonic() + (LONGEST_S if ends_later else 0.0)
        left = living(self.run)
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = living(self.run)
        seconds = time.time() - int(self.record(0).read_text()) / 1e9
        assert left == [], said
        return Outcome(process.returncode, said, seconds)

    def elsewhere(self, name: str) -> Trial:
        """Another trial of the same kind."""
        directory = self.directory / name
        directory.mkdir()
        return Trial(directory, self.volumes, self.worker, self.compiled)

    def resume(self, *options: str) -> str:
        # One instance is as good as two, and half the work; `make faults` pastes the line as it is shown.
        few = ("--num-instances", "1") if ROUNDS == 1 else ()
        process = self._start("resume", str(self.run), *few, *options)
        said = self.ended(process)
        assert process.returncode == 0, said
        assert living(self.run) == []
        return said

    def assert_checkpoints_are_whole(self, newest: Optional[int]) -> None:
        """Every checkpoint there is, and at least that of an update."""
        updates = [checkpoints.load(path).update for path in found_in(self.checkpoints)]
        assert updates == [] if newest is None else updates[-1] >= newest

    def assert_continues(self, undisturbed: Optional[Trial]) -> None:
        """Resumed, it ends as the undisturbed one, if there is one to compare it with."""
        if undisturbed is not None:
            self.resume()
            self.assert_same_end(undisturbed)

    def assert_same_end(self, undisturbed: Trial) -> None:
        mine, theirs = (checkpoints.newest_whole(trial.checkpoints) for trial in (self, undisturbed))
        assert mine is not None and theirs is not None and mine.update == theirs.update == UPDATES
        for group in ("weights", "optimizer", "more"):
            values, expected = getattr(mine, group), getattr(theirs, group)
            assert len(values) == len(expected) and all(map(np.array_equal, values, expected)), group
        mine, theirs = (json.loads((trial.run / "summary.json").read_text()) for trial in (self, undisturbed))
        assert mine["updates"] == theirs["updates"] and mine["metrics"] == theirs["metrics"]


def living(run: Path) -> List[Tuple[int, str]]:
    """The processes of a run, whoever started them and wherever they have gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"{MARK}={run}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((int(entry.name), (entry / "cmdline").read_text().replace("\0", " ")[:80]))
            except OSError:  # it has just ended
                continue
    return found


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """A directory that the first test to need it makes, for all processes of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def directory(name: str, make: Callable[[Path], None]) -> Path:
        path, is_made = shared / name, shared / f"{name}.made"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_made.exists():
                shutil.rmtree(path, ignore_errors=True)  # of one who failed
                path.mkdir()
                make(path)
                is_made.touch()
        return path

    return directory


@pytest.fixture(scope="session")
def volumes(made_once: Any) -> Path:
    """A set that is read as a published one is."""

    def make(path: Path) -> None:
        words = ["data", "make", "cosmoflow", "--out", str(path / "set"), "--side", "4", "--samples", "24"]
        words += ["--validation-samples", "5"]
        subprocess.run([*IPULAUNCH, *words], check=True, capture_output=True, timeout=LONGEST_S)

    return made_once("fault-volumes", make) / "set"


@pytest.fixture(scope="session")
def compiled(made_once: Any) -> Path:
    """Where the modules of the light worker are kept compiled."""
    return made_once("fault-compiled", lambda path: None)


@pytest.fixture()
def worker() -> str:
    """Which one a trial starts, where a test does not say."""
    return "light"


@pytest.fixture()
def undisturbed(made_once: Any, volumes: Path, worker: str, compiled: Path) -> Optional[Trial]:
    if worker == "unresumed":
        return None

    def make(path: Path) -> None:
        trial = Trial(path, volumes, worker, compiled)
        # How many instances there are does not show in the weights, and one is half the work.
        process = trial.start(instances=1 if ROUNDS == 1 else 2)
        said = trial.ended(process)
        assert process.returncode == 0, said

    return Trial(made_once(f"fault-undisturbed-{worker}", make), volumes, worker, compiled)


@pytest.fixture()
def trial(tmp_path: Path, volumes: Path, worker: str, compiled: Path) -> Trial:
    return Trial(tmp_path, volumes, worker, compiled)


@pytest.fixture()
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A disk of a few KiB; called with another size, it grows."""
    path = tmp_path / "disk"
    path.mkdir()

    def mount(size: str) -> Path:
        how = "remount," if path.is_mount() else ""
        words = ["mount", "-t", "tmpfs", "-o", f"{how}size={size}", "tmpfs", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            (pytest.skip if ROUNDS == 1 else pytest.fail)(f"a small disk cannot be mounted here: {done.stderr.strip()}")
        return path

    yield mount
    if path.is_mount():
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture()
def noted() -> Callable[[str, Outcome, bool], None]:
    """Puts what was measured into the table."""

    def note(name: str, outcome: Outcome, is_resumed: bool) -> None:
        _measured.setdefault(name, []).append((outcome.code, outcome.seconds, is_resumed))

    return note


def table() -> List[str]:
    lines = [
        "| fault | exit code | seconds to the verdict | resumed: ends as the undisturbed run |",
        "| --- | --- | --- | --- |",
    ]
    for name, outcomes in _measured.items():
        code, _, is_resumed = outcomes[0]
        seconds = ", ".join(f"{seconds:.1f}" for _, seconds, _ in outcomes)
        lines.append(f"| {name} | {code} | {seconds} | {'yes' if is_resumed else 'nothing is left to resume'} |")
    return lines


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if ROUNDS == 1 or not _measured:
        return
    terminalreporter.section("fault table")
    terminalreporter.write_line("\n".join(table()))
    if os.environ.get("FAULT_TABLE"):
        path = Path(os.environ["FAULT_TABLE"])
        lines = path.read_text(encoding="utf-8").splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("|"))
        after = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
        path.write_text("\n".join([*lines[:first], *table(), *lines[after:]]) + "\n", encoding="utf-8")
