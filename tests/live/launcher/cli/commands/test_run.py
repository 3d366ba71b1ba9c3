"""`ipulaunch run`: what it takes, and what it says of options that do nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Tuple

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        pytest.param((), 4, id="not on the PATH"),
        pytest.param(("--env", "PATH={here}"), 0, id="on that of the instances"),
        pytest.param(("--dry-run",), 0, id="a line to paste elsewhere"),
    ],
)
def test_a_program_that_is_not_there_is_no_run(
    more: Tuple[str, ...], code: int, ipulaunch: Run, fake_mpirun: Path, tmp_path: Path
) -> None:
    (tmp_path / "my_program").write_text("#!/bin/sh\n")
    (tmp_path / "my_program").chmod(0o755)
    words = [word.format(here=tmp_path) for word in more]
    found, _, err = ipulaunch("run", "--pod", "4", "--engine", "openmpi", *words, "--", "my_program")
    assert (found, "there is no program my_program here" in err) == (code, code == 4)
    assert (tmp_path / "runs").exists() == (code == 0 and "--dry-run" not in more)
