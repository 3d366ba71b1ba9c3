"""Many instances, and logs of many lines: the real launcher over real Open MPI, measured from outside."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Tuple

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.supervise.progress import Follower

MOST_MB = 60.0  # the launcher has 21 of its own; one that kept the lines of four instances would have 100 more
LINES = 200_000
LONGEST_S = 1800  # bounds a hang
# Writes its lines, and now and then a record of the time, which the launcher shows.
WRITER = """
import json, os, sys, time
instance, count, run = os.environ["OMPI_COMM_WORLD_RANK"], int(sys.argv[1]), sys.argv[2]
with open(f"{run}/instance-{int(instance):03}/events.jsonl", "w", buffering=1) as records:
    for line in range(count):
        sys.stdout.write(f"instance {instance} has come to line {line} of its log\\n")
        if line % (count // 10) == 0:
            now = time.time_ns()
            records.write(json.dumps({"event": "warning", "time_ns": now, "message": f"written at {now}"}) + "\\n")
"""

# Takes the place of the Python that runs a worker: one update, and all that a worker records of it.
TRIVIAL_WORKER = """#!/bin/sh
while [ "$1" != --run-dir ]; do shift; done
place=$2/$(printf instance-%03d "$OMPI_COMM_WORLD_RANK")
echo "instance $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"
cat > "$place/events.jsonl" <<END
{"event": "started", "time_ns": 1, "host": "localhost"}
{"event": "training", "time_ns": 2, "samples": 1, "epochs": 1, "updates_per_epoch": 1, "first_update": 0, "left_out": 0}
{"event": "log", "time_ns": 3, "update": 1, "epoch": 1, "epochs": 1, "samples_per_s": 0.5, "loss": 0.25}
END
"""
LAST = """echo '{"time_ns": 4}' > "$place/done.json"\n"""


class Measured(NamedTuple):
    """A launch, and what it cost."""

    code: int
    peak_mb: float  # of the launcher alone
    talk: List[Tuple[float, str]]  # lines on stderr, and when they came

    def __str__(self) -> str:
        return "".join(line for _, line in self.talk)


@pytest.fixture
def launch(mpirun: str, own_environment: Dict[str, str], tmp_path: Path) -> Callable[..., Measured]:
    """Runs a workload or `run` to its end; what instances write goes to the file `output`."""

    def launch(what: str, instances: int, *more: str) -> Measured:
        words = [sys.executable, "-m", "ipulaunch.launcher", what, "--engine", "openmpi", "--oversubscribe"]
        words += ["--pod", str(instances), "--num-instances", str(instances), "--run-dir", "run", *more]
        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen(
                words, cwd=tmp_path, env=own_environment, stdout=output, stderr=subprocess.PIPE, text=True
            )
        talk: List[Tuple[float, str]] = []
        assert process.stderr is not None
        stderr = process.stderr
        reader = threading.Thread(target=lambda: talk.extend((time.time(), line) for line in stderr))
        reader.start()
        peak_mb, started = 0.0, time.monotonic()
        try:
            while process.poll() is None:
                assert time.monotonic() < started + LONGEST_S, talk
                peak_mb = max(peak_mb, _peak_mb(process.pid))
                time.sleep(0.05)
        finally:
            process.kill()
            process.wait()
            reader.join()
            stderr.close()
        return Measured(process.returncode, peak_mb, talk)

    return launch


def _peak_mb(pid: int) -> float:
    """The most memory that a process has had; it never shrinks, so that the last look tells of all the time before."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc", str(pid), "status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0  # one that has just ended has none


def trivial_worker(directory: Path, last: str = LAST) -> str:
    path = directory / "worker"
    path.write_text(TRIVIAL_WORKER + last)
    path.chmod(0o700)
    return str(path)


@pytest.mark.night
def test_64_instances_of_a_trivial_worker_start_report_and_end(launch: Callable[..., Measured], tmp_path: Path) -> None:
    """At night: 64 processes; eight go the same way below."""
    done = launch("cosmoflow", 64, "--python", trivial_worker(tmp_path), "--num-replicas", "64", "--verbose")
    assert done.code == 0, done
    assert "loss 0.25" in str(done) and "\ndone in " in str(done)
    follower = Follower(RunDirectory(tmp_path / "run"), 64)
    follower.look()
    follower.close()
    assert (len(follower.progress.started), follower.progress.samples_per_s) == (64, 32)
    for instance in range(64):
        log = tmp_path / "run" / f"instance-{instance:03}" / "log.txt"
        assert log.read_text() == f"instance {instance} of 64\n"
    assert sorted((tmp_path / "output").read_text().splitlines()) == sorted(
        f"localhost:{instance}| instance {instance} of 64" for instance in range(64)
    )
    assert 0 < done.peak_mb < MOST_MB


def test_one_that_leaves_no_record_of_its_end_is_named(launch: Callable[..., Measured], tmp_path: Path) -> None:
    worker = trivial_worker(tmp_path, f'[ "$OMPI_COMM_WORLD_RANK" = 5 ] || {LAST}')
    done = launch("cosmoflow", 8, "--python", worker, "--num-replicas", "8")
    assert done.code == 7, done
    assert "localhost:5 ended without its done.json (1 of 8 have none)" in str(done)
    for instance in range(8):
        log = tmp_path / "run" / f"instance-{instance:03}" / "log.txt"
        assert log.read_text() == f"instance {instance} of 8\n"


@pytest.mark.night
def test_long_logs_are_whole_and_neither_slow_the_display_nor_fill_the_memory(
    launch: Callable[..., Measured], tmp_path: Path
) -> None:
    """At night: 800,000 lines keep two cores busy for a while."""
    done = launch("run", 4, "--", sys.executable, "-ISc", WRITER, str(LINES), str(tmp_path / "run"))
    assert done.code == 0, done
    for instance in range(4):
        log = tmp_path / "run" / f"instance-{instance:03}" / "log.txt"
        expected = (f"instance {instance} has come to line {line} of its log\n" for line in range(LINES))
        assert log.read_text() == "".join(expected)
    assert (tmp_path / "output").read_bytes().count(b"\n") == 4 * LINES
    assert 0 < done.peak_mb < MOST_MB

    shown = [(came, re.search(r"written at (\d+)", line)) for came, line in done.talk]
    written = [(came, int(found.group(1)) / 1e9) for came, found in shown if found]
    assert len(written) == 10  # all of instance 0
    assert written[0][0] < written[-1][1]  # shown while the instances still wrote
