from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List

import pytest

from ipulaunch.launcher.supervise import processes
from ipulaunch.launcher.supervise.session_files import segments_of

pytestmark = pytest.mark.core
WAITS = [sys.executable, "-ISc", "import sys; print('up', flush=True); sys.stdin.read()"]


@pytest.mark.parametrize("name", [b"na\xffme", b") Z 1 (", b"a b"], ids=["no text", "parentheses", "blank"])
def test_processes_are_found_beside_one_of_any_name(name: bytes) -> None:
    own = Path("/proc/self/comm")
    before = own.read_bytes().strip()
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
        own.write_bytes(name)
        try:
            assert child.pid in processes.descendants()
        finally:
            own.write_bytes(before)


def test_shared_memory_is_looked_for_beside_files_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"na\xffme")
    path.write_bytes(b"x")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1):
        assert segments_of(os.getpid()) == set()


@pytest.fixture()
def instances() -> Iterator[List[subprocess.Popen[bytes]]]:
    """Two processes that are instances by their environment, and one that is none."""
    ranks = ({"OMPI_COMM_WORLD_RANK": "0"}, {"OMPI_COMM_WORLD_RANK": "1"}, {})
    pipe = subprocess.PIPE
    started = [subprocess.Popen(WAITS, stdin=pipe, stdout=pipe, env={**os.environ, **rank}) for rank in ranks]
    for process in started:
        assert process.stdout is not None and process.stdout.readline()  # before, it may have no environment yet
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_instance_that_was_stopped_goes_on_alone(instances: List[subprocess.Popen[bytes]]) -> None:
    waits, stops, is_none = (process.pid for process in instances)
    assert not processes.wake()
    os.kill(stops, signal.SIGSTOP)
    os.waitpid(stops, os.WUNTRACED)
    assert processes.wake()
    assert os.WIFCONTINUED(os.waitpid(stops, os.WCONTINUED)[1])
    assert os.WIFSTOPPED(os.waitpid(waits, os.WUNTRACED)[1])
    assert os.waitpid(is_none, os.WUNTRACED | os.WNOHANG) == (0, 0)
