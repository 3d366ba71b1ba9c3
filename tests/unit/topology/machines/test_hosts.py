from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional

import pytest

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.configs.pods import HostEntry
from ipulaunch.topology.machines import cpulist
from ipulaunch.topology.machines.hosts import Host, discover, named, parse_layout, reference


def machine(
    root: Path,
    nodes: Dict[int, str],
    *,
    allowed: str = "0-1023",
    siblings: Optional[Dict[int, str]] = None,
    cgroup: str = "0::/",
    files: Optional[Dict[str, str]] = None,
) -> Host:
    """What discover() finds where the kernel's files say this; `files` are under /sys/fs/cgroup."""
    texts = {"proc/self/status": f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\nMems_allowed:\t1\n"}
    texts["proc/self/cgroup"] = cgroup + "\n"
    for node, cpus in nodes.items():
        texts[f"sys/devices/system/node/node{node}/cpulist"] = cpus + "\n"
    for cpu, threads in (siblings or {}).items():
        texts[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = threads + "\n"
    for name, text in (files or {}).items():
        texts[f"sys/fs/cgroup/{name}"] = text + "\n"
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return discover("here", root)


def sizes(host: Host) -> List[int]:
    return [len(node.cores) for node in host.nodes]


def all_cpus(host: Host) -> List[int]:
    return sorted(thread for node in host.nodes for core in node.cores for thread in core)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_every_numa_node_is_found(count: int, tmp_path: Path) -> None:
    host = machine(tmp_path, {node: f"{4 * node}-{4 * node + 3}" for node in range(count)})
    assert (host.name, host.source, host.cores) == ("here", "discovered", 4 * count)
    assert [node.number for node in host.nodes] == list(range(count))
    assert [node.cores[0] for node in host.nodes] == [(4 * node,) for node in range(count)]


def test_nodes_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    host = machine(tmp_path, {node: str(node) for node in range(12)})
    assert [node.number for node in host.nodes] == list(range(12))


def test_uneven_nodes_keep_their_sizes(tmp_path: Path) -> None:
    host = machine(tmp_path, {0: "0-42", 1: "43-85", 2: "86-127"})
    assert (sizes(host), host.cores) == ([43, 43, 42], 128)


def test_threads_of_a_core_stay_together(tmp_path: Path) -> None:
    siblings = {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    host = machine(tmp_path, {0: "0-1,4-5", 1: "2-3,6-7"}, siblings=siblings)
    assert [node.cores for node in host.nodes] == [((0, 4), (1, 5)), ((2, 6), (3, 7))]


def test_neighbouring_threads_are_one_core(tmp_path: Path) -> None:
    host = machine(tmp_path, {0: "0-3"}, siblings={0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"})
    assert host.nodes[0].cores == ((0, 1), (2, 3))


def test_node_without_cpus_runs_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path, {0: "0-1", 1: "", 2: "2-3"})
    assert [node.number for node in host.nodes] == [0, 2]


def test_kernel_without_nodes_is_one_node(tmp_path: Path) -> None:
    host = machine(tmp_path, {}, allowed="0-2,5")
    assert [(node.number, node.cores) for node in host.nodes] == [(0, ((0,), (1,), (2,), (5,)))]


@pytest.mark.parametrize(
    ("allowed", "cores"),
    [
        pytest.param("0-3", {0: 4}, id="one node"),
        pytest.param("2-5", {0: 2, 1: 2}, id="across"),
        pytest.param("7", {1: 1}, id="one CPU of the second node"),
        pytest.param("0,2,4-7", {0: 2, 1: 4}, id="holes"),
    ],
)
def test_only_allowed_cpus_count(allowed: str, cores: Dict[int, int], tmp_path: Path) -> None:
    host = machine(tmp_path, {0: "0-3", 1: "4-7"}, allowed=allowed)
    assert {node.number: len(node.cores) for node in host.nodes} == cores
    assert all_cpus(host) == list(cpulist.parse(allowed))


def test_thread_that_is_not_allowed_is_left_out_of_its_core(tmp_path: Path) -> None:
    host = machine(tmp_path, {0: "0-3"}, allowed="0,2-3", siblings={c: f"{c % 2},{c % 2 + 2}" for c in range(4)})
    assert host.nodes[0].cores == ((0, 2), (3,))


V1 = "12:pids:/x\n4:cpu,cpuacct:{}\n3:cpuset:/y\n1:name=systemd:/z"


@pytest.mark.parametrize(
    ("cgroup", "files", "cores"),
    [
        pytest.param("0::/", {}, 8, id="no limit file"),
        pytest.param("0::/", {"cpu.max": "max 100000"}, 8, id="v2 max"),
        pytest.param("0::/", {"cpu.max": "300000 100000"}, 3, id="v2 quota"),
        pytest.param("0::/", {"cpu.max": "150000 50000"}, 3, id="v2 other period"),
        pytest.param("0::/", {"cpu.max": "200000"}, 2, id="v2 without period"),
        pytest.param("0::/", {"cpu.max": "250000 100000"}, 2, id="v2 fraction"),
        pytest.param("0::/", {"cpu.max": "50000 100000"}, 1, id="v2 less than one CPU"),
        pytest.param("0::/", {"cpu.max": "9000000 100000"}, 8, id="v2 more than there is"),
        pytest.param("0::/a/b", {"a/b/cpu.max": "400000 100000"}, 4, id="v2 own group"),
        pytest.param("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "500000 100000"}, 5, id="v2 parent"),
        pytest.param(
            "0::/a/b", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, 2, id="v2 tightest is outer"
        ),
        pytest.param(
            "0::/a/b", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "400000 100000"}, 2, id="v2 tightest is inner"
        ),
        pytest.param("0::/docker/abc", {"cpu.max": "200000 100000"}, 2, id="v2 container sees its group as root"),
        pytest.param("0::/a", {"b/cpu.max": "100000 100000"}, 8, id="v2 another group"),
        pytest.param(V1.format("/"), {"cpu/cpu.cfs_quota_us": "-1"}, 8, id="v1 no limit"),
        pytest.param(
            V1.format("/"), {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3, id="v1 quota"
        ),
        pytest.param(
            V1.format("/"), {"cpu/cpu.cfs_quota_us": "75000", "cpu/cpu.cfs_period_us": "50000"}, 1, id="v1 fraction"
        ),
        pytest.param(V1.format("/"), {"cpu/cpu.cfs_quota_us": "200000"}, 2, id="v1 without period"),
        pytest.param(
            V1.format("/a/b"),
            {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_quota_us": "-1"},
            2,
            id="v1 nested",
        ),
        pytest.param(V1.format("/docker/abc"), {"cpu/cpu.cfs_quota_us": "200000"}, 2, id="v1 container"),
        pytest.param(V1.format("/a") + "\n0::/u", {"cpu/a/cpu.cfs_quota_us": "200000"}, 2, id="v1 beside an empty v2"),
        pytest.param(V1.format("/"), {"cpu/y/cpu.cfs_quota_us": "100000"}, 8, id="v1 cpuset is not cpu"),
    ],
)
def test_quota(cgroup: str, files: Dict[str, str], cores: int, tmp_path: Path) -> None:
    assert machine(tmp_path, {0: "0-3", 1: "4-7"}, cgroup=cgroup, files=files).cores == cores


@pytest.mark.parametrize(
    ("quota", "left"),
    [(7, [4, 3]), (6, [3, 3]), (5, [3, 2]), (2, [1, 1]), (1, [1])],
)
def test_quota_is_taken_where_most_cores_are_left(quota: int, left: List[int], tmp_path: Path) -> None:
    host = machine(tmp_path, {0: "0-3", 1: "4-7"}, files={"cpu.max": f"{quota}00000 100000"})
    assert sizes(host) == left


def test_quota_counts_after_the_allowed_set(tmp_path: Path) -> None:
    files = {"cpu.max": "300000 100000"}
    assert sizes(machine(tmp_path, {0: "0-3", 1: "4-7"}, allowed="0-4", files=files)) == [2, 1]


def test_machine_without_cgroups_has_no_quota(tmp_path: Path) -> None:
    machine(tmp_path, {0: "0-3"})
    (tmp_path / "proc/self/cgroup").unlink()
    assert discover("here", tmp_path).cores == 4


def test_name_of_the_process_may_be_any_text(tmp_path: Path) -> None:
    machine(tmp_path, {0: "0-3"})
    status = tmp_path / "proc/self/status"
    status.write_bytes(b"Name:\tpyth\xc3\xb6n\xff\n" + status.read_bytes())
    assert discover("here", tmp_path).cores == 4


def test_system_that_is_not_linux_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="/proc/self/status") as caught:
        discover("here", tmp_path)
    assert "Linux" in caught.value.hint


def test_reference_host_numbers_second_threads_last() -> None:
    host = reference("h0", HostEntry(numa_nodes=8, cores_per_node=16, threads_per_core=2), "catalogue")
    assert (sizes(host), host.source) == ([16] * 8, "catalogue")
    assert (host.nodes[0].cores[0], host.nodes[7].cores[15]) == ((0, 128), (127, 255))
    assert all_cpus(host) == list(range(256))


def test_named_changes_the_name_only() -> None:
    host = reference("h0", HostEntry(2, 4, 1), "given")
    assert named(host, "h1") == Host("h1", host.nodes, "given")


def test_layout() -> None:
    assert parse_layout("8x16") == HostEntry(numa_nodes=8, cores_per_node=16, threads_per_core=1)


@pytest.mark.parametrize("text", ["", "8", "8x", "x16", "0x16", "8x0", "00x16", "8x16x2", "-1x4", "8x16\n", "99999x1"])
def test_wrong_layout_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not NODESxCORES") as caught:
        parse_layout(text)
    assert "8x16" in caught.value.hint


def test_a_host_larger_than_any_is_refused() -> None:
    assert parse_layout("256x256").cores_per_node == 256
    with pytest.raises(UsageError, match="9999x9999 is a host of 99980001 cores, and a plan has at most 65536"):
        parse_layout("9999x9999")
