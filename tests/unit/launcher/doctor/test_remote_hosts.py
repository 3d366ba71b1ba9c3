from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import pytest

from ipulaunch.launcher.doctor import remote_hosts
from ipulaunch.launcher.doctor.diagnosis import Diagnosis
from ipulaunch.launcher.doctor.environment import Environment, Output
from ipulaunch.launcher.doctor.remote_hosts import Shared, ask_host, check_hosts
from ipulaunch.launcher.engines.registry import ENGINES

SHARED = Shared(Diagnosis(python="/opt/py"), "/shared/.marker", "/shared", "/data")
GOOD = {
    "marker": True, "directory": True, "data": True, "python": "3.8.1", "version": version("ipulaunch"), "time": 1000.0,
}  # fmt: skip


def answered(**changes: Any) -> Output:
    return Output(0, "Welcome!\nipulaunch-doctor " + json.dumps({**GOOD, **changes}) + "\n", "motd")


@pytest.mark.parametrize(
    ("output", "name", "state", "found", "fix"),
    [
        (answered(), "ssh", "ok", "without a password", ""),
        (Output(255, "", "a@h: Permission denied (publickey,password)."), "ssh", "missing", "denied", "ssh-copy-id h"),
        (Output(255, "", "Host key verification failed."), "ssh", "missing", "key", "ssh-keyscan h"),
        (Output(255, "", "ssh: Could not resolve hostname h"), "ssh", "missing", "resolve", "check the name"),
        (Output(255, "", "connect to host h port 22: Connection refused"), "ssh", "missing", "refused", "sshd on h"),
        (Output(255, "", ""), "ssh", "missing", "ssh failed", "by hand"),
        (Output(None, "", "no answer within 20 s"), "ssh", "missing", "no answer", "by hand"),
        (answered(), "Python", "ok", "3.8.1: /opt/py", ""),
        (Output(127, "", "sh: /opt/py: not found"), "Python", "missing", "not found", "same path on every host"),
        (Output(0, "ipulaunch-doctor {nonsense"), "Python", "missing", "nonsense", "same path"),
        (Output(0, "ipulaunch-doctor [1]"), "Python", "missing", "", "same path"),
        (answered(), "ipulaunch", "ok", version("ipulaunch"), ""),
        (answered(version="0.0.1"), "ipulaunch", "missing", "0.0.1, and here", "same version"),
        (answered(version=""), "ipulaunch", "missing", "not installed", "install"),
        (answered(), "run directory", "ok", "/shared is shared", ""),
        (answered(marker=False), "run directory", "missing", "not the same", "--run-dir"),
        (answered(directory=False), "run directory", "missing", "not there", "--run-dir"),
        (answered(), "data", "ok", "/data", ""),
        (answered(data=False), "data", "missing", "/data cannot be read", "same path"),
        (answered(time=1000.9), "clock", "ok", "within 1 s", ""),
        (answered(time=1003.0), "clock", "warning", "3.0 s ahead", "chrony"),
        (answered(time=990.0), "clock", "warning", "10.0 s behind", "chrony"),
        (answered(time="noon"), "clock", "warning", "does not report", "date"),
    ],
)
def test_one_host(
    output: Output, name: str, state: str, found: str, fix: str, make_environment: Callable[..., Environment]
) -> None:
    environment = make_environment(says={"ssh": output}, clock=lambda: 1000.0)
    check = {check.name: check for check in ask_host("h", SHARED, environment, 5)}[name]
    assert (check.group, check.state, found in check.found, fix in check.fix) == ("host h", state, True, True), check
    assert check.stops == (ENGINES if state == "missing" else ())


@pytest.mark.parametrize(
    ("time", "state", "found"),
    [
        (999.5, "ok", "within 9 s"),
        (1004.0, "ok", "within 9 s"),
        (1008.9, "ok", "within 9 s"),
        (998.0, "warning", "2.0 s behind"),
        (1010.0, "warning", "2.0 s ahead"),
    ],
)
def test_a_host_that_answers_slowly_is_not_taken_for_one_with_a_wrong_clock(
    time: float, state: str, found: str, make_environment: Callable[..., Environment]
) -> None:
    times = iter([1000.0, 1008.0])
    environment = make_environment(says={"ssh": answered(time=time)}, clock=lambda: next(times))
    check = {check.name: check for check in ask_host("h", SHARED, environment, 20)}["clock"]
    assert (check.state, found in check.found) == (state, True), check


def test_ssh_is_never_allowed_to_ask(make_environment: Callable[..., Environment]) -> None:
    calls: List[List[str]] = []
    ask_host("h", SHARED._replace(data="/a b"), make_environment(says={"ssh": answered()}, calls=calls), 5)
    assert calls == [
        ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "h",
         "/opt/py - /shared/.marker /shared '/a b'"]
    ]  # fmt: skip


def test_a_directory_that_cannot_be_marked_leaves_a_doubt(make_environment: Callable[..., Environment]) -> None:
    environment = make_environment(says={"ssh": answered(marker=False)})
    checks = {check.name: check for check in ask_host("h", SHARED._replace(marker=""), environment, 5)}
    assert (checks["run directory"].state, "this was not checked" in checks["run directory"].found) == ("warning", True)


def test_this_machine_is_not_asked(make_environment: Callable[..., Environment], tmp_path: Path) -> None:
    diagnosis = Diagnosis(hosts=("localhost", platform.node()), directory=tmp_path)
    assert [check.found for check in check_hosts(diagnosis, make_environment())] == ["this machine"] * 2


def test_without_ssh_no_host_can_be_reached(make_environment: Callable[..., Environment], tmp_path: Path) -> None:
    checks = check_hosts(Diagnosis(hosts=("a", "b"), directory=tmp_path), make_environment())
    assert [(check.group, check.state) for check in checks] == [("host a", "missing"), ("host b", "missing")]


def test_hosts_that_are_not_reached_in_time_are_told(
    make_environment: Callable[..., Environment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_hosts, "_ALL_S", 0.0)
    (check,) = check_hosts(Diagnosis(hosts=("a",), directory=tmp_path), make_environment(says={"ssh": answered()}))
    assert (check.state, "not asked" in check.found) == ("missing", True)


def test_hosts_are_asked_side_by_side(make_environment: Callable[..., Environment], tmp_path: Path) -> None:
    import threading

    meeting = threading.Barrier(3)

    def run(argv: Sequence[str], timeout_s: float, text: str = "") -> Output:
        meeting.wait(600)  # all three are there at the same time, or it breaks
        return answered()

    environment = make_environment(says={"ssh": answered()}, run=run)
    checks = check_hosts(Diagnosis(hosts=("a", "b", "c"), directory=tmp_path), environment)
    assert [check.group for check in checks if check.name == "ssh"] == ["host a", "host b", "host c"]
    assert not list(tmp_path.glob(".ipulaunch-doctor-*"))


def test_inside_a_job_no_ssh_is_needed_at_all(make_environment: Callable[..., Environment], tmp_path: Path) -> None:
    environment = make_environment(environ={"SLURM_JOB_ID": "1"})
    (check,) = check_hosts(Diagnosis(hosts=("a",), directory=tmp_path), environment)
    assert (check.state, check.stops, "srun" in check.fix) == ("warning", (), True)


@pytest.mark.parametrize(
    ("changes", "name", "stops"),
    [
        ({"version": ""}, "ipulaunch", ("openmpi",)),  # mpirun starts programs through a module of ours
        ({"version": "0.0.1"}, "ipulaunch", ()),
        ({"marker": False}, "run directory", ()),
        ({"directory": False}, "run directory", ()),
    ],
)
def test_own_programs_need_less_on_other_hosts(
    changes: Dict[str, Any], name: str, stops: Sequence[str], make_environment: Callable[..., Environment]
) -> None:
    shared = SHARED._replace(diagnosis=Diagnosis(python="/opt/py", is_own_program=True))
    checks = {c.name: c for c in ask_host("h", shared, make_environment(says={"ssh": answered(**changes)}), 5)}
    assert (checks[name].state, checks[name].stops) == ("missing", stops)
    no_python = make_environment(says={"ssh": Output(127, "", "sh: /opt/py: not found")})
    assert {c.name: c.stops for c in ask_host("h", shared, no_python, 5)}["Python"] == ("openmpi",)
