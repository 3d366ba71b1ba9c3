from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

FAKES = Path(__file__).parents[3] / "fakes"


TWO_HOSTS = ("run", "--pod", "16", "--hosts", "a,b", "--dry-run", "--engine", "poprun")


def test_a_strict_poprun_takes_them_to_every_instance(ipulaunch: Callable[..., Any], fake_mpirun: Path) -> None:
    line = shlex.split(ipulaunch(*TWO_HOSTS, "--num-instances", "2", "--env", "A=1", "--", "prog").out)
    words = line[line.index("poprun") + 1 :]
    environ = {**os.environ, "STANDIN_MPIRUN": str(fake_mpirun), "FAKE_MPIRUN": "show"}
    done = subprocess.run(
        [sys.executable, str(FAKES / "poprun"), *words], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("'-x', 'A', '-x', 'OPAL_PREFIX', '-x', 'CPATH', 'prog'") == 2
