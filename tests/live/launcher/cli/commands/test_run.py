"""`ipulaunch run`: what it takes, and what it says of options that do nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.supervise.endings import read_endings

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


COMES_BACK = """
import json, os, pathlib, signal, sys, time
attempt, index = int(os.environ["IPULAUNCH_ATTEMPT"]), int(os.environ["OMPI_COMM_WORLD_RANK"])
run = pathlib.Path("mine")
def await_file(path):
    for _ in range(30000):
        if path.exists():
            return
        time.sleep(0.02)
def stop(number, frame):
    if index:  # mpirun would end it now, if the first had left
        await_file(run / "instance-000" / "exited.json")
    pathlib.Path(f"saved-{attempt}-{index}").touch()
    sys.exit(75)
if attempt == 1:
    sys.exit(3 * index)
if attempt == 2 and index == 0:
    await_file(pathlib.Path("ready-2-1"))  # the other one gets TERM from now on
    sys.exit(75)
if attempt < 4:
    signal.signal(signal.SIGUSR1 if attempt == 3 else signal.SIGTERM, stop)
    pathlib.Path(f"ready-{attempt}-{index}").touch()
    if attempt == 3 and index == 0:
        await_file(pathlib.Path("ready-3-1"))
        os.kill(json.loads((run / "launcher.json").read_text())["pid"], signal.SIGUSR1)
    for _ in range(3000):
        time.sleep(0.2)
"""


def test_a_program_is_restarted_stopped_and_resumed(
    mpirun: str, own_environment: Dict[str, str], tmp_path: Path
) -> None:
    """It fails, asks to be continued, gets a signal and asks again, and does the rest when it is resumed."""
    (tmp_path / "f.py").write_text(COMES_BACK)
    where = ("--pod", "4", "--num-instances", "2", "--oversubscribe", "--engine", "openmpi", "--allow-run-as-root")
    again = ("--max-restarts", "2", "--restart-backoff", "0", "--run-dir", "mine")
    call = [sys.executable, "-m", "ipulaunch.launcher"]

    def ipulaunch(*words: str) -> Tuple[int, str]:
        ended = subprocess.run([*call, *words], env=own_environment, cwd=tmp_path, capture_output=True, text=True)
        return ended.returncode, ended.stderr

    code, err = ipulaunch("run", *where, *again, "--", sys.executable, "f.py")
    assert code == 75, err
    assert "1 failed first: it ended with exit code 3" in err
    assert "restart 1 of 2, with IPULAUNCH_ATTEMPT=2" in err.replace(" now,", ",")
    assert "SIGUSR1: passed on to the program" in err
    assert [(tmp_path / f"saved-3-{index}").exists() for index in range(2)] == [True, True]
    assert [ending.exit_code for ending in read_endings(RunDirectory(tmp_path / "mine"))] == [7, 75, 75]
    assert ipulaunch("resume", "mine")[0] == 0
    assert "there is nothing to resume" in ipulaunch("resume", "mine")[1]
