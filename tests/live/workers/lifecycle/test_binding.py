"""Binding changes the process, so it happens in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, List

import pytest

from ipulaunch.topology.machines.hosts import discover

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
