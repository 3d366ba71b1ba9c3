"""Several hosts: a rehearsal across two, and what becomes of it when one of them is lost in mid-run."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from subprocess import Popen
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import pytest

pytestmark = pytest.mark.hosts

STALL_S = 60  # with less, a busy machine would count as hung while it imports and compiles
IPULAUNCH = [sys.executable, "-m", "ipulaunch.launcher"]
# 600 updates of a few milliseconds, with a checkpoint every 60.
JOB = [
    *("cosmoflow", "--pod", "4", "--num-instances", "2", "--engine", "openmpi", "--num-epochs", "100"),
    *("--logs-per-epoch", "1/10", "--ckpts-per-epoch", "1/10"),
    *("--set", "data.side=4", "--set", "data.n_train=24", "--set", "data.n_valid=5"),
    *("--set", "model.n_conv_layers=1", "--set", "model.conv_size=1", "--set", "survival.restart_backoff_s=0.1"),
]
# Whether mpirun notices a lost host: never, or long before the run counts as hung.
UNNOTICED = ["--mpi-global-args", "--prtemca oob_tcp_keepalive_time 0"]
NOTICED_SOON = ["--mpi-global-args", "--prtemca oob_tcp_keepalive_time 1 --prtemca oob_tcp_keepalive_intvl 1"]
SITE = Path(__file__).parents[1] / "faults" / "site"
SLOW_S = 600  # more for a machine that is busy
Start = Callable[..., "Popen[str]"]


def events(run: Path, instance: int) -> List[Dict[str, Any]]:
    path = run / f"instance-{instance:03}" / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def started_on(run: Path) -> List[str]:
    of_instances = [events(path.parent, int(path.name[-3:])) for path in sorted(run.glob("instance-*"))]
    return [event["host"] for found in of_instances for event in found if event["event"] == "started"]


def assert_same_end(run: Path, undisturbed: Path) -> None:
    """To the bit: these hosts are one machine, and how many take part does not show."""
    paths = [path / "checkpoints" / "update-00000600" / "state.npz" for path in (run, undisturbed)]
    with np.load(paths[0], allow_pickle=False) as found, np.load(paths[1], allow_pickle=False) as expected:
        assert sorted(found.files) == sorted(expected.files)
        for name in expected.files:
            assert np.array_equal(found[name], expected[name]), name


@pytest.fixture(scope="module")
def undisturbed(network: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on both hosts, started on one of them."""
    directory = tmp_path_factory.mktemp("undisturbed")
    words = [*IPULAUNCH, *JOB, "--hosts", "a,b", "--run-dir", "run"]
    done = network.hosts["a"].run(*words, directory=directory)
    assert done.returncode == 0, done.stderr
    return directory / "run"


@pytest.fixture()
def start(network: Any, tmp_path: Path) -> Iterator[Start]:
    """Starts the job on both hosts, from a third; returns when it has a checkpoint, and holds until there is `go`."""
    held, go = tmp_path / "held", tmp_path / "go"
    fault = {"instance": 1, "at": "step", "count": 75, "do": "hold", "until": str(go), "record": str(held)}
    faults = json.dumps([{**fault, "run": str(tmp_path / "run")}])
    started: List[Popen[str]] = []

    def start(*options: str) -> Popen[str]:
        words = [*IPULAUNCH, *JOB, "--hosts", "a,b", "--stall-timeout", str(STALL_S), *options, "--run-dir", "run"]
        words += ["--env", f"PYTHONPATH={SITE}", "--env", f"FAULTS={faults}"]
        process: Popen[str] = network.hosts["login"].start(*words, directory=tmp_path)
        started.append(process)
        deadline = time.monotonic() + SLOW_S
        while not held.exists():
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.01)
        assert any(event["event"] == "checkpoint" for event in events(tmp_path / "run", 0))
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_rehearsal_runs_on_both_hosts(network: Any, undisturbed: Path) -> None:
    assert started_on(undisturbed) == ["a", "b"]
    for name in ("a", "b"):
        network.wait(lambda host=network.hosts[name]: host.processes() == [], SLOW_S)


class Wrong:
    """Something that keeps host b from taking part, for a while."""

    def __init__(self, network: Any, directory: Path) -> None:
        self.network, self.directory = network, directory

    def cut(self) -> Callable[[], None]:
        self.network.cut("b")
        return lambda: self.network.mend("b")

    def key(self) -> Callable[[], None]:
        keys = self.network.ssh / "authorized_keys"
        text = keys.read_text()
        keys.write_text("")
        return lambda: keys.write_text(text)

    def not_shared(self) -> Callable[[], None]:
        self.network.hosts["b"].ask("mount", "-t", "tmpfs", "none", str(self.directory))
        return lambda: self.network.hosts["b"].ask("umount", str(self.directory))

    def no_path(self) -> Callable[[], None]:
        self.network.hosts["b"].ask("mount", "-t", "tmpfs", "none", str(self.directory.parent))
        return lambda: self.network.hosts["b"].ask("umount", str(self.directory.parent))


@pytest.mark.night
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("cut", "ssh: connect to host b port 22"),
        ("key", "Permission denied"),
        ("not_shared", "is there, but is not the same as here"),
        ("no_path", "is not there"),
    ],
)
def test_a_host_that_cannot_take_part_is_told_before_anything_starts(
    wrong: str, said: str, network: Any, tmp_path: Path
) -> None:
    """At night: what is told is tested without hosts as well."""
    directory = tmp_path / "shared" / "runs"
    directory.mkdir(parents=True)
    mend = getattr(Wrong(network, directory), wrong)()
    try:
        words = [*IPULAUNCH, *JOB, "--hosts", "a,b", "--run-dir", str(directory / "run")]
        done = network.hosts["a"].run(*words, directory=tmp_path)
    finally:
        mend()
    assert done.returncode == 4, done.stderr
    assert "host b" in done.stderr and said in done.stderr
    assert list(directory.iterdir()) == []
    network.wait(lambda: network.hosts["b"].processes() == [], SLOW_S)


@pytest.mark.night
def test_the_doctor_sees_every_host(network: Any, tmp_path: Path) -> None:
    """At night: what it asks a host is tested without hosts as well."""
    done = network.hosts["a"].run(*IPULAUNCH, "doctor", *JOB, "--hosts", "a,b", "--json", directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout)["checks"]
    found = {group: {c["name"]: c["state"] for c in checks if c["group"] == group} for group in ("host a", "host b")}
    names = ("ssh", "Python", "ipulaunch", "run directory", "clock")
    assert found == {"host a": {"ssh": "ok"}, "host b": dict.fromkeys(names, "ok")}


@pytest.mark.night
def test_a_host_that_is_cut_off_is_named_within_the_stall_limit(
    start: Start, network: Any, undisturbed: Path, tmp_path: Path
) -> None:
    """At night: a lost host takes a minute to be considered lost."""
    run = tmp_path / "run"
    process = start(*UNNOTICED, "--max-restarts", "1")
    network.cut("b")
    (tmp_path / "go").touch()
    try:
        network.wait((run / "endings.jsonl").exists, STALL_S + SLOW_S)  # for its answer, which does not come
        # Cut off as it is, what runs there ends by itself.
        network.wait(lambda: network.hosts["b"].processes() == [], STALL_S + SLOW_S)
        _, said = process.communicate(timeout=SLOW_S)
        network.wait(lambda: network.hosts["a"].processes() == [], SLOW_S)
        words = [*IPULAUNCH, "resume", "run", "--hosts", "a"]
        resumed = network.hosts["login"].run(*words, directory=tmp_path)
    finally:
        network.mend("b")
    assert process.returncode == 7, said
    first, second = (json.loads(line)["headline"] for line in (run / "endings.jsonl").read_text().splitlines()[:2])
    assert first.startswith(f"no progress for {STALL_S} s: host b does not answer (ssh: connect to host b")
    assert second.startswith("not started: host b does not answer") and "restart 1 of 1" in said
    assert resumed.returncode == 0, resumed.stderr
    assert set(started_on(run)) == {"a"}
    assert_same_end(run, undisturbed)


@pytest.mark.night
def test_elastic_hosts_go_on_without_the_one_that_is_cut_off(
    start: Start, network: Any, undisturbed: Path, tmp_path: Path
) -> None:
    """At night: a lost host takes a minute to be considered lost."""
    process = start(*NOTICED_SOON, "--elastic-hosts", "--max-restarts", "1")
    network.cut("b")
    (tmp_path / "go").touch()
    try:
        run = tmp_path / "run"
        network.wait((run / "attempts" / "1").exists, STALL_S + SLOW_S)
        network.wait(lambda: network.hosts["b"].processes() == [], STALL_S + SLOW_S)
        _, said = process.communicate(timeout=SLOW_S)
    finally:
        network.mend("b")
    assert process.returncode == 0, said
    assert "failed: host b was lost" in said
    assert "host b does not answer (ssh: connect to host b" in said and "going on with a\n" in said
    assert started_on(run) == ["a"] and json.loads((run / "plan.json").read_text())["replicas"] == 4
    assert "--host a:1" in (run / "command.txt").read_text()
    assert_same_end(run, undisturbed)
    for name in ("a", "b"):
        network.wait(lambda host=network.hosts[name]: host.processes() == [], SLOW_S)


@pytest.mark.night
def test_elastic_hosts_go_on_without_the_one_of_the_first_instance(
    start: Start, network: Any, undisturbed: Path, tmp_path: Path
) -> None:
    """At night: a lost host takes a minute to be considered lost."""
    process = start(*NOTICED_SOON, "--elastic-hosts", "--max-restarts", "1")
    network.hosts["a"].switch_off()
    (tmp_path / "go").touch()
    try:
        _, said = process.communicate(timeout=SLOW_S)
    finally:
        network.switch_on("a")
    assert process.returncode == 0, said
    assert "failed: host a was lost" in said and "going on with b\n" in said
    assert started_on(tmp_path / "run") == ["b"]
    assert_same_end(tmp_path / "run", undisturbed)
    network.wait(lambda: network.hosts["b"].processes() == [], SLOW_S)
