from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

pytestmark = pytest.mark.core

Run = Callable[..., Any]


def test_rehearsal_is_what_cpus_get(ipulaunch: Run, fake_mpirun: Path) -> None:
    words = ("cosmoflow", "--pod", "4", "--engine", "openmpi", "--host-layout", "1x1", "--dry-run")
    code, out, err = ipulaunch(*words)
    assert (code, err) == (0, "")
    assert out.startswith(f"{shlex.quote(str(fake_mpirun))} --bind-to none --output tag -np 1 --host localhost:1 -x ")
    assert out.endswith(f" {sys.executable} -m ipulaunch.workers cosmoflow --backend cpu --rehearsal\n")
    assert ipulaunch(*words, "--no-rehearsal").out == out.replace(" --rehearsal", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, ipulaunch: Run) -> None:
    code, out, err = ipulaunch(env={"_IPULAUNCH_COMPLETE": f"{shell}_source"})
    assert (code, err) == (0, "")
    assert f"_IPULAUNCH_COMPLETE={shell}_complete" in out
