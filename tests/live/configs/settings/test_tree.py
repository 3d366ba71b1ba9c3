from __future__ import annotations

import subprocess
import sys

import pytest

DEEP = """
from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.tree import {name}
try:
    {name}({start!r} + "[" * 50_000, "--set")
except SettingsError as error:
    print(error.message)
"""


# In an interpreter of its own: the YAML reader overflows the C stack on such a text, which no handler catches.
@pytest.mark.parametrize(("name", "start"), [("parse_yaml", "a: "), ("assignment", "a=")], ids=["file", "--set"])
def test_a_text_of_brackets_does_not_end_the_interpreter(name: str, start: str) -> None:
    command = [sys.executable, "-c", DEEP.format(name=name, start=start)]
    done = subprocess.run(command, capture_output=True, timeout=1800, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"nested more than 20 deep" in done.stdout
