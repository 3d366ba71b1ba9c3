from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("name", "is_ended"), [("prted", True), ("orted", True), ("mpirun", False)])
def test_the_daemon_of_a_host_that_is_cut_off_ends_as_well(name: str, is_ended: bool, tmp_path: Path) -> None:
    program = "from ipulaunch.workers.lifecycle.lifetime import end_here; end_here('cut off')"
    daemon = tmp_path / name
    daemon.write_text(
        f'#!/bin/sh\ntrap "echo asked; exit 3" TERM\n"{sys.executable}" -c "{program}"\necho ended with $?\n'
    )
    daemon.chmod(0o755)
    done = subprocess.run([str(daemon)], capture_output=True, text=True, timeout=1800, check=False)
    assert done.stderr == "error: cut off\n"
    assert (done.returncode, done.stdout) == ((3, "asked\n") if is_ended else (0, "ended with 7\n"))
