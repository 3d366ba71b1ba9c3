"""`ipulaunch run`: what it takes, and what it says of options that do nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, Tuple

import pytest

Run = Callable[..., Any]

LEAVE_ONE_AFTER_THE_OTHER = """
import os, pathlib, sys, time
left, instance = pathlib.Path(sys.argv[1]), int(os.environ["POPDIST_REPLICA_INDEX_OFFSET"]) // 2
if instance == 0:
    left.write_text(str(os.getpid()))
    sys.exit(0)
for _ in range(30000):
    if left.exists() and left.read_text() and not os.path.exists("/proc/" + left.read_text()):
        break
    time.sleep(0.02)
raise RuntimeError("the very reason")
"""


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


def test_an_instance_that_fails_after_another_has_left_is_named(mpirun: str, ipulaunch: Run, tmp_path: Path) -> None:
    """mpirun says nothing then."""
    (tmp_path / "f.py").write_text(LEAVE_ONE_AFTER_THE_OTHER)
    program = (sys.executable, "-IS", str(tmp_path / "f.py"), str(tmp_path / "left"))
    words = ("--pod", "4", "--num-instances", "2", "--engine", "openmpi", "--run-dir", "mine")
    words = (*words, "--allow-run-as-root")  # whoever runs the tests
    code, _, err = ipulaunch("run", *words, "--", *program)
    assert code == 7
    assert "localhost:1 failed first: it ended with exit code 1" in err
    assert "  | RuntimeError: the very reason" in err


ASK_POPDIST = """
import pathlib, sys, time
import popdist, popdist.tensorflow
popdist.init()
index, places = popdist.getInstanceIndex(), pathlib.Path(sys.argv[1])
(places / f"{index}.new").write_text(f"{index} {popdist.getNumInstances()} {popdist.getNumTotalReplicas()}")
(places / f"{index}.new").rename(places / str(index))
for _ in range(30000):  # the first that fails ends the others
    if all((places / str(other)).exists() for other in range(popdist.getNumInstances())):
        break
    time.sleep(0.02)
popdist.tensorflow.set_ipu_config(None)
"""


def test_a_rehearsed_program_can_ask_popdist_for_its_place(mpirun: str, ipulaunch: Run, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(ASK_POPDIST)
    (tmp_path / "places").mkdir()
    words = ("--pod", "4", "--num-instances", "2", "--engine", "openmpi", "--run-dir", "mine", "--allow-run-as-root")
    code, _, err = ipulaunch("run", *words, "--", sys.executable, str(tmp_path / "f.py"), str(tmp_path / "places"))
    assert code == 7
    assert [(tmp_path / "places" / index).read_text() for index in "01"] == ["0 2 4", "1 2 4"]
    assert "popdist.tensorflow.set_ipu_config() needs IPUs and the Poplar SDK, and this is a rehearsal" in err
