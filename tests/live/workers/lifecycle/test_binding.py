"""Binding changes the process, so it happens in one of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, List, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.last_records import read_exited
from ipulaunch.topology.machines.hosts import discover

PLACE_OF_1 = {
    "NUM_TOTAL_REPLICAS": "4",
    "NUM_LOCAL_REPLICAS": "2",
    "REPLICA_INDEX_OFFSET": "2",
    "LOCAL_INSTANCE_INDEX": "1",
}
SHOW = """
import json, os
from dataclasses import asdict
from ipulaunch.workers.lifecycle.binding import bind
binding = bind({cpus}, {cores}, (0,))
print(json.dumps([asdict(binding), sorted(os.sched_getaffinity(0))]))
"""


def bound(cpus: Any, cores: int) -> Any:
    code = SHOW.format(cpus=sorted(cpus), cores=cores)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800, check=True)
    return json.loads(done.stdout)


def test_a_process_runs_on_its_share_and_takes_memory_from_its_node() -> None:
    first = min(os.sched_getaffinity(0))
    binding, affinity = bound({first}, 1)
    assert affinity == [first]
    assert (binding["cpus"], binding["cores"]) == (str(first), 1)
    assert binding["memory"] == "nodes 0" or binding["memory"].startswith("not set: ")


def test_a_share_that_is_not_ours_is_not_taken() -> None:
    binding, affinity = bound({4095}, 1)
    assert affinity == sorted(os.sched_getaffinity(0))
    assert binding["cores"] == 1


@pytest.mark.parametrize(("given", "expected"), [({}, "1"), ({"OMP_NUM_THREADS": "7"}, "7")], ids=["sized", "kept"])
def test_a_program_is_bound_and_its_threads_sized_unless_the_user_did(given: Any, expected: str) -> None:
    cores = [core for node in discover("here").nodes for core in node.cores]
    place = {
        "POPDIST_NUM_TOTAL_REPLICAS": "1",
        "POPDIST_NUM_LOCAL_REPLICAS": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(cores)),
    }
    environ = {**{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}, **place, **given}
    code = "import os; print(len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    command = [sys.executable, "-m", "ipulaunch.workers.bound", sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=1800, check=True)
    assert done.stdout.split() == [str(len(cores[0])), expected]


def test_a_program_that_does_not_start_says_so() -> None:
    command = [sys.executable, "-m", "ipulaunch.workers.bound", "no-such-program"]
    environ = {**os.environ, "PATH": os.defpath}  # on others there may be directories where we may not look
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 127
    assert done.stderr == "error: no-such-program does not start: No such file or directory\n"


@pytest.mark.parametrize(
    ("replicas", "program", "code", "said"),
    [
        ("3", ["true"], 4, "error: POPDIST_* do not fit together: 3 replicas, 2 of them here from index 0\nhint: "),
        ("2", [], 2, "error: no program is named\nhint: python -m"),
    ],
    ids=["environment", "no program"],
)
def test_what_keeps_a_program_from_starting_has_its_exit_code(
    replicas: str, program: List[str], code: int, said: str
) -> None:
    environ = {**os.environ, "POPDIST_NUM_TOTAL_REPLICAS": replicas, "POPDIST_NUM_LOCAL_REPLICAS": "2"}
    command = [sys.executable, "-m", "ipulaunch.workers.bound", *program]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == code and done.stderr.startswith(said)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(["/bin/sh", "-c", "exit 3"], (3, 0), id="exit code"),
        pytest.param(["/bin/sh", "-c", "exit 0"], (0, 0), id="good"),
        pytest.param(["/bin/sh", "-c", "kill -SEGV $$"], (0, signal.SIGSEGV), id="signal"),
        pytest.param(["/bin/sh", "-c", "kill -TERM 0; exit 5"], (0, signal.SIGTERM), id="signal to the group"),
        pytest.param(["/bin/sh", "-c", "trap 'exit 5' TERM; kill -TERM 0; exit 6"], (5, 0), id="caught by the program"),
        pytest.param(["/no/such/program"], (127, 0), id="does not start"),
    ],
)
def test_how_a_program_ends_is_recorded_and_passed_on(
    program: List[str], expected: Tuple[int, int], tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.instance(1).mkdir(parents=True)
    place = {f"POPDIST_{name}": value for name, value in PLACE_OF_1.items()}
    command = [sys.executable, "-m", "ipulaunch.workers.bound", "--run-dir", str(run.path), *program]
    done = subprocess.run(
        command, env={**os.environ, **place}, capture_output=True, timeout=1800, check=False, start_new_session=True
    )
    code, number = expected
    assert done.returncode == (-number or code)
    found = read_exited(run, 1)
    assert found is not None and (found.exit_code, found.signal) == expected


def test_a_record_that_finds_no_room_changes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ipulaunch.workers.bound", "--run-dir", str(tmp_path / "none"), "/bin/sh", "-c"]
    done = subprocess.run([*command, "echo said; exit 3"], stdout=subprocess.PIPE, timeout=1800, check=False)
    assert (done.returncode, done.stdout) == (3, b"said\n")
