from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict

import pytest

from ipulaunch.launcher.doctor.diagnosis import Check, Diagnosis
from ipulaunch.launcher.doctor.environment import Space
from ipulaunch.launcher.doctor.machine import check_clock, check_cores, check_limits, check_memory, check_network

MIB, GIB = 1 << 20, 1 << 30
CHECKS = (check_cores, check_memory, check_limits, check_network, check_clock)


def limits(files: str = "1024 4096", processes: str = "4000 4000", locked: str = "unlimited unlimited") -> str:
    return (
        f"Max open files  {files}  files\nMax processes  {processes}  processes\nMax locked memory  {locked}  bytes\n"
    )


def no_space(path: Path) -> Space:
    raise FileNotFoundError(2, "No such file or directory")


@pytest.fixture()
def look(make_environment: Callable[..., Any], make_plan: Callable[..., Any]) -> Callable[..., Dict[str, Check]]:
    """All checks of a machine, by name, for so many instances of one core on it."""

    def run(machine: Dict[str, Any], instances: int, engine: str) -> Dict[str, Check]:
        diagnosis = Diagnosis()
        if instances:
            diagnosis = Diagnosis(plan=make_plan(instances, instances, layout=(1, 64)), engine=engine)
        environment = make_environment(**machine)
        return {check.name: check for examine in CHECKS for check in examine(diagnosis, environment)}

    return run


@pytest.mark.parametrize(
    ("machine", "instances", "name", "state", "found"),
    [
        pytest.param({}, 0, "cores", "ok", "4 cores on 2 NUMA nodes: CPUs 0-3", id="cores"),
        pytest.param(
            {"files": {"proc/self/status": "Cpus_allowed_list:\t1-2\n"}}, 0, "cores", "ok",
            "2 cores on 2 NUMA nodes: CPUs 1-2 (2 of 4 CPUs are allowed)", id="allowed-cpus",
        ),
        pytest.param(
            {"files": {"sys/fs/cgroup/cpu.max": "200000 100000\n"}}, 0, "cores", "ok",
            "(a cgroup limits CPU time)", id="cpu-quota",
        ),
        pytest.param({"files": {"proc/self/status": ""}}, 0, "cores", "missing", "CPUs", id="no-status"),
        pytest.param(
            {"files": {"sys/devices/system/node/node0/cpulist": "?"}}, 0, "cores", "missing", "", id="bad-cpulist"
        ),
        pytest.param({}, 8, "instances", "warning", "8 instances share 4 cores", id="shared-cores"),
        pytest.param({}, 1, "memory", "ok", "22.9 GiB free", id="memory"),
        pytest.param({}, 32, "memory", "warning", "for 32 instances", id="little-memory"),
        pytest.param(
            {"files": {"sys/fs/cgroup/memory.max": f"{2 * GIB}\n"}}, 1, "memory", "ok", "2 GiB, the limit of a cgroup",
            id="memory-limit",
        ),
        pytest.param(
            {"files": {"sys/fs/cgroup/memory.max": "max\n"}}, 1, "memory", "ok", "22.9 GiB free", id="no-memory-limit"
        ),
        pytest.param(
            {
                "files": {
                    "proc/self/cgroup": "4:memory:/a/b\n0::/\n",
                    "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{GIB // 2}\n",
                    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
                }
            },
            1, "memory", "warning", "512 MiB, the limit of a cgroup", id="old-cgroup",
        ),
        pytest.param({"files": {"proc/meminfo": ""}}, 0, "memory", "warning", "/proc/meminfo", id="no-meminfo"),
        pytest.param({}, 4, "/dev/shm", "ok", "10 GiB of 20 GiB free", id="shared-memory"),
        pytest.param(
            {"space": lambda path: Space(64 * MIB, 60 * MIB, None)}, 8, "/dev/shm", "warning", "60 MiB", id="little-shm"
        ),
        pytest.param({"space": no_space}, 0, "/dev/shm", "warning", "No such file", id="no-shm"),
        pytest.param({}, 4, "open files", "ok", "at most 1024", id="open-files"),
        pytest.param({}, 64, "open files", "warning", "1024, for 64 instances", id="few-open-files"),
        pytest.param({"files": {"proc/self/limits": ""}}, 8, "open files", "ok", "as there is room", id="no-limits"),
        pytest.param({}, 4, "processes", "ok", "at most 96343", id="processes"),
        pytest.param(
            {"files": {"proc/self/limits": limits(processes="100 100")}}, 16, "processes", "warning",
            "16 instances take about 896", id="few-processes",
        ),
        pytest.param(
            {"files": {"sys/fs/cgroup/pids.max": "64\n"}}, 16, "processes", "warning", "at most 64", id="pids-limit"
        ),
        pytest.param({}, 0, "locked memory", "ok", "no limit", id="locked-memory"),
        pytest.param(
            {"files": {"proc/self/limits": limits(locked="65536 65536")}}, 0, "locked memory", "warning", "64 KiB",
            id="little-locked-memory",
        ),
        pytest.param({}, 0, "loopback", "ok", "127.0.0.1", id="loopback"),
        pytest.param({"talk_to_self": lambda: "down"}, 0, "loopback", "missing", "down", id="no-loopback"),
        pytest.param({}, 4, "ports", "ok", "28232", id="ports"),
        pytest.param(
            {"files": {"proc/sys/net/ipv4/ip_local_port_range": "60000 60050"}}, 4, "ports", "warning", "51 for",
            id="few-ports",
        ),
        pytest.param({}, 0, "clock", "ok", "2096-10-02 07:06:40 UTC", id="clock"),
        pytest.param({"clock": lambda: 0.0}, 0, "clock", "warning", "1970-01-01", id="clock-not-set"),
    ],
)  # fmt: skip
def test_the_machine(
    machine: Dict[str, Any], instances: int, name: str, state: str, found: str, look: Callable[..., Dict[str, Check]]
) -> None:
    check = look(machine, instances, "openmpi")[name]
    assert (check.state, found in check.found) == (state, True), check
    assert bool(check.fix) == (state != "ok")


def test_ports_that_are_hidden_are_not_mentioned(look: Callable[..., Dict[str, Check]]) -> None:
    assert "ports" not in look({"files": {"proc/sys/net/ipv4/ip_local_port_range": ""}}, 0, "")


def test_ipus_take_more_shared_memory(look: Callable[..., Dict[str, Check]]) -> None:
    machine = {"space": lambda path: Space(GIB, GIB // 2, None)}
    assert [look(machine, 1, engine)["/dev/shm"].state for engine in ("openmpi", "poprun")] == ["ok", "warning"]


@pytest.mark.parametrize(
    ("hard", "fix"), [("4096", "ulimit -n 1088"), ("1024", "ask for a hard limit of 1088")], ids=["soft", "hard"]
)
def test_a_limit_is_raised_as_far_as_it_can_be(hard: str, fix: str, look: Callable[..., Dict[str, Check]]) -> None:
    machine = {"files": {"proc/self/limits": limits(files=f"1024 {hard}")}}
    assert fix in look(machine, 64, "openmpi")["open files"].fix
