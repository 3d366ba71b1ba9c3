"""docs/own-program.md, done as it says: a program of the user's own from its plan to a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest

Run = Callable[[str], Tuple[int, str]]

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "own-program.md"
HERE = "--oversubscribe --allow-run-as-root"  # whatever this machine is
LINE = "y = 3.000 x + 2.000"


def _lines(start: str) -> List[str]:
    """The command lines of the page that begin so, without their comments."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line.partition("   #")[0].strip() for line in lines if line.startswith(start)]


@pytest.fixture()
def shell(own_environment: Dict[str, str], tmp_path: Path) -> Run:
    """Runs a line as a shell would, with `ipulaunch` and this Python on its PATH."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, words in {
        "ipulaunch": f'"{sys.executable}" -m ipulaunch.launcher',
        "python3": f'"{sys.executable}"',
    }.items():
        (commands / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (commands / name).chmod(0o755)
    (tmp_path / "docs").mkdir()
    shutil.copy(PAGE.with_name("my_train.py"), tmp_path / "docs")
    environ = {**own_environment, "PATH": f"{commands}{os.pathsep}{own_environment['PATH']}"}

    def run(line: str) -> Tuple[int, str]:
        done = subprocess.run(["bash", "-c", line], env=environ, cwd=tmp_path, capture_output=True, encoding="utf-8")
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_program_is_rehearsed_stopped_and_continued(mpirun: str, shell: Run) -> None:
    rehearsal, first = (
        line.replace(" --pod", f" {HERE} --pod") for line in _lines("ipulaunch run") if "--engine" in line
    )
    code, said = shell(rehearsal)
    assert code == 0 and LINE in said and "instance 1 of 2, attempt 1: from update 0" in said, said
    code, said = shell(f"rm line.npz; {first}")
    assert code == 75 and "asks to be continued" in said, said
    (again,) = _lines("ipulaunch resume")
    code, said = shell(again)
    assert code == 0 and LINE in said and "instance 1 of 2, attempt 2: from update 120" in said, said


def test_the_job_calls_the_program_again(mpirun: str, shell: Run, tmp_path: Path) -> None:
    """The script of the page, for CPUs: it stops of its own accord, and goes on when it is submitted again."""
    printed = next(line for line in _lines("ipulaunch submit") if "--dry-run" in line)
    here = f"{HERE} --engine openmpi --num-instances 2 --host-layout 1x2 --no-requeue --run-dir fit"
    line = printed.replace(" --pod", f" {here} --pod").replace(" --requeue", "")
    assert shell(f"{line} --updates-per-attempt 120 >job.sh")[0] == 0
    assert shell("bash job.sh")[0] == 75
    code, said = shell("bash job.sh")
    assert code == 0 and LINE in said and "attempt 2: from update 120" in said, said
