from __future__ import annotations

import subprocess
import sys
from typing import Dict

import pytest


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_any_character_can_be_printed_in_any_encoding(encoding: str, own_environment: Dict[str, str]) -> None:
    environ = {**own_environment, "PYTHONIOENCODING": encoding}
    words = [sys.executable, "-m", "ipulaunch.launcher", "plan", "program", "--pod", "4"]
    done = subprocess.run(words, capture_output=True, timeout=1800, check=False, env=environ)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "└─ NUMA".encode(encoding, "backslashreplace") in done.stdout
