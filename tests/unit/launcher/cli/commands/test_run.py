"""`ipulaunch run`: what it takes, and what it says of options that do nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

Run = Callable[..., Any]


def test_output_is_always_shown_so_there_is_no_option_for_it(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("run", "--pod", "4", "--verbose", "--dry-run", "--", "true")
    assert (code, "--verbose" in err) == (2, True)


@pytest.mark.parametrize(("engine", "is_told"), [("poprun", True), ("openmpi", False)])
def test_poprun_starts_the_program_itself(engine: str, is_told: bool, ipulaunch: Run, fake_mpirun: Path) -> None:
    words = ("--pod", "4", "--engine", engine, "--python", "/x", "--dry-run")
    code, out, err = ipulaunch("run", *words, "--", "true")
    assert (code, "/x" in out, "without effect, as poprun starts the program itself: --python" in err) == (
        0,
        not is_told,
        is_told,
    )


def test_a_python_that_is_not_there_is_no_run(ipulaunch: Run, fake_mpirun: Path, tmp_path: Path) -> None:
    words = ("--pod", "4", "--engine", "openmpi", "--python", "/x")
    code, _, err = ipulaunch("run", *words, "--", "true")
    assert (code, "there is no program /x here" in err, (tmp_path / "runs").exists()) == (4, True, False)


def test_a_dry_run_has_no_directory(ipulaunch: Run) -> None:
    code, _, err = ipulaunch("run", "--pod", "4", "--dry-run", "--run-dir", "here", "--", "true")
    assert (code, "note: --run-dir is for runs" in err) == (0, True)


@pytest.mark.parametrize("engine", ["poprun", "openmpi"])
def test_a_program_is_no_option(engine: str, ipulaunch: Run, fake_mpirun: Path) -> None:
    code, out, err = ipulaunch("run", "--pod", "4", "--engine", engine, "--dry-run", "--", "-x", "a")
    assert (code, out) == (2, "")
    assert "-x is not a program" in err and "write ./-x" in err
