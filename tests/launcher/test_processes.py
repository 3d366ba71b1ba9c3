from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipulaunch.launcher import processes
from ipulaunch.launcher.session_files import segments_of

pytestmark = pytest.mark.core


@pytest.mark.parametrize("name", [b"na\xffme", b") Z 1 (", b"a b"], ids=["no text", "parentheses", "blank"])
def test_processes_are_found_beside_one_of_any_name(name: bytes) -> None:
    own = Path("/proc/self/comm")
    before = own.read_bytes().strip()
    waits = [sys.executable, "-ISc", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as child:
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
