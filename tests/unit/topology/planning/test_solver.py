from __future__ import annotations

import itertools
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pytest

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.messages import WARNING
from ipulaunch.configs.pods import Catalogue, HostEntry
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology.machines import cpulist
from ipulaunch.topology.machines.hosts import Host, NumaNode, reference
from ipulaunch.topology.machines.pods import find, of_size, usual_ilds
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.topology.planning.solver import Request, Solution, solve

MakeNodes = Callable[..., Tuple[NumaNode, ...]]
Solve = Callable[..., Solution]


@pytest.fixture
def solved(catalogue: Catalogue) -> Solve:
    """solve(), for a POD by its name and hosts by their number or their layout."""

    def solve_for(pod: str = "16", hosts: int = 1, layout: str = "8x16", **wishes: Any) -> Solution:
        nodes, cores = map(int, layout.split("x"))
        machines = tuple(reference(f"h{i}", HostEntry(nodes, cores, 1), "given") for i in range(hosts))
        return solve(Request(workload="w", system=find(pod, catalogue), hosts=machines, **wishes))

    return solve_for


def shape(plan: Plan) -> Tuple[int, int, int]:
    return plan.instances, plan.replicas_per_instance, plan.ipus_per_replica


def why(solution: Solution, name: str) -> str:
    return {decision.name: decision.why for decision in solution.decisions}[name]


def test_cosmoflow_on_a_pod16_has_an_instance_per_replica(catalogue: Catalogue) -> None:
    launch = resolve("cosmoflow", rehearsal=False).settings.launch
    host = reference("h0", catalogue.reference_host, "catalogue")
    wishes = {"io_bound": launch.io_bound, "min_cores_per_instance": launch.min_cores_per_instance}
    assert shape(solve(Request("cosmoflow", find("16", catalogue), (host,), **wishes)).plan) == (16, 1, 1)


def test_rehearsal_on_two_cores_keeps_the_replicas(catalogue: Catalogue) -> None:
    launch = resolve("cosmoflow", rehearsal=True).settings.launch
    host = reference("laptop", HostEntry(1, 2, 1), "discovered")
    wishes = {"io_bound": launch.io_bound, "min_cores_per_instance": launch.min_cores_per_instance}
    plan = solve(Request("cosmoflow", find("16", catalogue), (host,), is_rehearsal=True, **wishes)).plan
    assert shape(plan) == (2, 8, 1)
    assert not plan.oversubscribed


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        pytest.param({}, (8, 2, 1), id="ResNet-50 on one IPU"),
        pytest.param({"ipus_per_replica": 4}, (4, 1, 4), id="ResNet-50 in a pipeline of four"),
        pytest.param({"io_bound": True, "min_cores_per_instance": 4}, (16, 1, 1), id="IO-bound"),
        pytest.param({"io_bound": True, "min_cores_per_instance": 9}, (8, 2, 1), id="IO-bound, hungry"),
        pytest.param({"io_bound": True, "min_cores_per_instance": 999}, (1, 16, 1), id="IO-bound, starving"),
        pytest.param({"layout": "2x4"}, (2, 8, 1), id="two nodes"),
        pytest.param({"layout": "3x4"}, (2, 8, 1), id="three nodes"),
        pytest.param({"pod": "64", "hosts": 4}, (32, 2, 1), id="four hosts"),
        pytest.param({"pod": "256", "hosts": 4}, (32, 8, 1), id="four racks"),
        pytest.param({"pod": "256", "layout": "1x4"}, (4, 64, 1), id="an instance per domain at least"),
        pytest.param(
            {"pod": "256", "layout": "1x2", "is_rehearsal": True}, (1, 256, 1), id="a rehearsal has no domains"
        ),
        pytest.param({"instances": 2}, (2, 8, 1), id="instances asked for"),
        pytest.param({"replicas": 4}, (4, 1, 1), id="replicas asked for"),
        pytest.param({"ipus": 8}, (8, 1, 1), id="half the system"),
        pytest.param({"ipus": 8, "replicas": 2, "ipus_per_replica": 4}, (2, 1, 4), id="all asked for"),
    ],
)
def test_shape_of_the_plan(wishes: Dict[str, Any], expected: Tuple[int, int, int], solved: Solve) -> None:
    assert shape(solved(**wishes).plan) == expected


def test_placements_go_host_by_host(solved: Solve) -> None:
    plan = solved("64", hosts=4, layout="2x4").plan
    assert [p.host for p in plan.placements] == ["h0", "h0", "h1", "h1", "h2", "h2", "h3", "h3"]
    assert [p.local_index for p in plan.placements] == [0, 1] * 4
    assert [p.numa_nodes for p in plan.placements] == [(0,), (1,)] * 4
    assert [p.first_replica for p in plan.placements] == list(range(0, 64, 8))


def test_every_number_has_a_decision_with_its_origin(solved: Solve) -> None:
    solution = solved(instances=4, micro_batch_size=2, origins={"instances": "--num-instances"})
    found = {decision.name: (decision.value, decision.origin) for decision in solution.decisions}
    assert found == {
        "ipus": ("16", "computed"),
        "ipus_per_replica": ("1", "computed"),
        "replicas": ("16", "computed"),
        "ilds": ("1", "computed"),
        "instances": ("4", "--num-instances"),
        "hosts": ("1", "computed"),
        "micro_batch_size": ("2", "computed"),
        "accumulation": ("1", "computed"),
        "global_batch_size": ("32", "computed"),
    }
    assert all(decision.why for decision in solution.decisions)


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        pytest.param(
            {}, "an instance per NUMA node (R10); 16 replicas over 1 host of 8 NUMA nodes, 128 cores", id="computed"
        ),
        pytest.param({"instances": 8}, "also the default", id="asked for the default"),
        pytest.param(
            {"instances": 2}, "the default would be 8: an instance per NUMA node (R10)", id="asked for another"
        ),
        pytest.param(
            {"io_bound": True, "min_cores_per_instance": 4}, "IO-bound: an instance per replica", id="IO-bound"
        ),
    ],
)
def test_instances_are_explained(wishes: Dict[str, Any], reason: str, solved: Solve) -> None:
    assert why(solved(**wishes), "instances").startswith(reason)


@pytest.mark.parametrize(
    ("wishes", "rejected"),
    [
        pytest.param(
            {},
            {16: "16 per host for 8 NUMA nodes (R10)", **dict.fromkeys((4, 2, 1), "fewer than the 8 that fit")},
            id="NUMA nodes",
        ),
        pytest.param(
            {"io_bound": True, "min_cores_per_instance": 10, "hosts": 2, "layout": "2x10"},
            {
                16: "2.5 cores each, below 10 (R13)",
                8: "5 cores each, below 10 (R13)",
                2: "fewer than the 4 that fit",
                1: "not a multiple of 2 hosts (R3)",
            },
            id="cores",
        ),
        pytest.param(
            {"pod": "128", "ipus_per_replica": 16, "hosts": 1},
            {
                4: "fewer than the 8 that fit",
                2: "fewer than the 8 that fit",
                1: "not a multiple of 2 IPU-Link domains (R8)",
            },
            id="domains",
        ),
        pytest.param(
            {"instances": 4},
            {
                16: "16 per host for 8 NUMA nodes (R10)",
                8: "the default, and 4 are asked for",
                **dict.fromkeys((2, 1), "fewer than the 8 that fit"),
            },
            id="asked for fewer",
        ),
        pytest.param(
            {"instances": 16},
            {8: "the default, and 16 are asked for", **dict.fromkeys((4, 2, 1), "fewer than the 8 that fit")},
            id="asked for more",
        ),
    ],
)
def test_rejected_numbers_are_explained(wishes: Dict[str, Any], rejected: Dict[int, str], solved: Solve) -> None:
    assert [(option.instances, option.why) for option in solved(**wishes).rejected] == list(rejected.items())


@pytest.mark.parametrize(
    ("wishes", "warning"),
    [
        pytest.param({"replicas": 8}, r"8 IPUs stay idle \(R4\)", id="idle IPUs"),
        pytest.param({"instances": 16}, r"16 instances per host for 8 NUMA nodes.*\(R10\)", id="NUMA nodes"),
        pytest.param(
            {"layout": "8x1", "min_cores_per_instance": 2}, r"8 instances on 8 cores.*the 2 .*\(R13\)", id="cores"
        ),
        pytest.param({"hosts": 2}, "2 hosts for pod16, whose build guide has at most 1", id="hosts"),
        pytest.param(
            {"layout": "3x4"}, "2 instances on 3 NUMA nodes: some reach memory of another node", id="crossing"
        ),
        pytest.param({"global_batch_size": 20}, "20 is not a multiple of 1 x 16 = 16: using 16", id="batch"),
        pytest.param({"ilds": 2}, r"2 IPU-Link domains for 16 IPUs.*\(R7\)", id="domains"),
    ],
)
def test_soft_rule_warns(wishes: Dict[str, Any], warning: str, solved: Solve) -> None:
    (message,) = solved(**wishes).messages
    assert message.kind == WARNING
    assert re.search(warning, message.text)


def test_usual_plan_has_no_warning(solved: Solve) -> None:
    assert solved().messages == ()
    assert solved("256", hosts=16, io_bound=True, min_cores_per_instance=4).messages == ()
    assert solved(hosts=2, is_rehearsal=True).messages == ()


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        pytest.param({"instances": 3}, r"16 replicas .* 3 instances \(R1\)", id="R1"),
        pytest.param({"instances": 32}, r"32 instances for 16 replicas.*\(R2\)", id="R2"),
        pytest.param({"instances": 2, "hosts": 4}, r"2 instances .* 4 hosts \(R3\)", id="R3"),
        pytest.param({"hosts": 3}, r"16 replicas .* 3 hosts .*R3", id="R3 by default"),
        pytest.param({"ipus_per_replica": 16, "hosts": 2}, r"1 replica .* 2 hosts .*R3", id="more hosts than replicas"),
        pytest.param({"replicas": 32}, r"32 replicas .* has 16 IPUs \(R4\)", id="R4"),
        pytest.param({"pod": "4", "ipus_per_replica": 8}, r"1 replica x 8 IPUs .* has 4 IPUs \(R4\)", id="R4 depth"),
        pytest.param({"ipus": 32}, r"32 .* 16 IPUs of pod16", id="more IPUs than there are"),
        pytest.param({"ipus": 12}, r"12 IPUs.*\(R5\)", id="R5"),
        pytest.param({"ipus_per_replica": 3}, r"3 IPUs per replica.*\(R6\)", id="R6"),
        pytest.param({"ipus_per_replica": 0}, r"0 IPUs per replica.*\(R6\)", id="R6 zero"),
        pytest.param({"instances": 2, "ilds": 4}, r"2 instances for 4 IPU-Link domains.*\(R8\)", id="R8"),
        pytest.param({"instances": 16, "layout": "1x2"}, "16 instances on h0, which has 2 cores", id="cores"),
        pytest.param({"ipus": 0}, r"\b0\b", id="no IPUs"),
        pytest.param({"ipus": -4}, r"-4\b", id="negative IPUs"),
        pytest.param({"replicas": 0}, r"\b0\b", id="no replicas"),
        pytest.param({"instances": 0}, r"\b0\b", id="no instances"),
        pytest.param({"ilds": 0}, r"\b0\b", id="no domains"),
    ],
)
def test_impossible_plan_is_refused_with_a_way_out(wishes: Dict[str, Any], message: str, solved: Solve) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        solved(**wishes)
    assert caught.value.hint
    assert not re.search(r"(?<![\w.])(-\d|0 or fewer)", caught.value.hint)


def test_system_without_ipus_is_refused(catalogue: Catalogue) -> None:
    host = reference("h0", catalogue.reference_host, "catalogue")
    with pytest.raises(PlanError, match=r"\b0 IPUs") as caught:
        solve(Request("w", of_size(0), (host,)))
    assert "0 or fewer" not in caught.value.hint


@pytest.mark.parametrize(
    "wishes",
    [
        pytest.param({"instances": 16, "layout": "1x2"}, id="fewer cores than instances"),
        pytest.param({"pod": "256", "layout": "1x2"}, id="fewer cores than domains"),
        pytest.param({"instances": 3, "hosts": 4}, id="neither replicas nor hosts divide"),
        pytest.param({"pod": "256", "instances": 3}, id="neither replicas nor domains divide"),
    ],
)
def test_instances_that_a_hint_names_give_a_plan(wishes: Dict[str, Any], solved: Solve) -> None:
    with pytest.raises(PlanError) as caught:
        solved(**wishes)
    match = re.search(r"--num-instances (\d+)(?: or (\d+))?", caught.value.hint)
    for word in filter(None, match.groups() if match else ()):
        assert solved(**{**wishes, "instances": int(word)}).plan.instances == int(word)


def test_oversubscribing_shares_cores_and_says_so(solved: Solve) -> None:
    plan = solved(instances=16, layout="1x2", oversubscribe=True).plan
    assert plan.oversubscribed
    assert [p.cpus for p in plan.placements] == ["0"] * 8 + ["1"] * 8


def test_allowing_it_does_not_oversubscribe(solved: Solve) -> None:
    assert solved(oversubscribe=True).plan == solved().plan


def verify(plan: Plan, ipus: int, hosts: Sequence[Host]) -> None:
    assert plan.ipus <= ipus
    assert plan.replicas * plan.ipus_per_replica == plan.ipus
    assert plan.instances * plan.replicas_per_instance == plan.replicas
    assert plan.instances_per_host * len(hosts) == plan.instances
    assert plan.instances % plan.ilds == 0
    assert plan.hosts == tuple(host.name for host in hosts)
    assert [p.instance for p in plan.placements] == list(range(plan.instances))
    assert [p.first_replica for p in plan.placements] == list(range(0, plan.replicas, plan.replicas_per_instance))
    assert [p.local_index for p in plan.placements] == list(range(plan.instances_per_host)) * len(hosts)
    seen = set()
    for number, host in enumerate(hosts):
        mine = plan.placements[number * plan.instances_per_host :][: plan.instances_per_host]
        assert {p.host for p in mine} == {host.name}
        layout = (host.nodes, tuple(p.cpus for p in mine))
        if layout not in seen:
            seen.add(layout)
            taken = [cpu for p in mine for cpu in cpulist.parse(p.cpus)]
            assert all(p.cpus and p.cores and p.numa_nodes for p in mine)
            assert set(taken) == {thread for node in host.nodes for core in node.cores for thread in core}
            assert plan.oversubscribed or len(taken) == len(set(taken))


@pytest.mark.parametrize("io_bound", [False, True], ids=["bound by the IPU", "bound by IO"])
@pytest.mark.parametrize(
    ("sizes", "threads"),
    [([1], 1), ([2], 1), ([1, 7], 1), ([4, 4], 2), ([43, 43, 42], 1), ([16] * 8, 2)],
    ids=["1", "2", "1+7", "4+4 SMT", "43+43+42", "8x16 SMT"],
)
def test_every_default_plan_divides_exactly(
    sizes: List[int], threads: int, io_bound: bool, catalogue: Catalogue, make_nodes: MakeNodes
) -> None:
    nodes, solvable = make_nodes(sizes, threads), 0
    for name, entry in catalogue.pods.items():
        for depth in (1, 2, 4, 8, 16):
            for count in (1, 2, 3, 4, 8, 16):
                hosts = tuple(Host(f"h{i}", nodes, "given") for i in range(count))
                wishes = {"ipus_per_replica": depth, "io_bound": io_bound, "oversubscribe": True}
                request = Request("w", find(name, catalogue), hosts, **wishes)  # type: ignore[arg-type]
                if (
                    depth <= entry.ipus
                    and (entry.ipus // depth) % max(count, usual_ilds(entry.ipus)) == 0
                    and count != 3
                ):
                    solvable += 1
                    plan = solve(request).plan
                    assert plan.ipus == entry.ipus
                    assert plan.oversubscribed is (plan.instances_per_host > sum(sizes))
                    verify(plan, entry.ipus, hosts)
                else:
                    with pytest.raises(PlanError):
                        solve(request)
    assert solvable > 200


@pytest.mark.parametrize(("sizes", "threads"), [([2], 1), ([4, 4], 2), ([43, 43, 42], 1)], ids=["2", "4+4", "43+43+42"])
def test_every_plan_asked_for_divides_exactly_or_is_refused(
    sizes: List[int], threads: int, catalogue: Catalogue, make_nodes: MakeNodes
) -> None:
    nodes = make_nodes(sizes, threads)
    for count in (1, 2, 4):
        hosts = tuple(Host(f"h{i}", nodes, "given") for i in range(count))
        for replicas in (*range(1, 17), 32):
            for instances in range(1, 34):
                request = Request("w", find("16", catalogue), hosts, replicas=replicas, instances=instances)
                legal = replicas in (1, 2, 4, 8, 16) and replicas % instances == 0 and instances % count == 0
                if legal and instances // count <= sum(sizes):
                    verify(solve(request).plan, 16, hosts)
                else:
                    with pytest.raises(PlanError):
                        solve(request)


def test_hosts_of_different_layouts_get_as_many_instances_each(catalogue: Catalogue, make_nodes: MakeNodes) -> None:
    hosts = (Host("small", make_nodes([2]), "given"), Host("large", make_nodes([16] * 8, 2), "given"))
    plan = solve(Request("w", find("16", catalogue), hosts, io_bound=True)).plan
    assert (plan.instances, plan.instances_per_host) == (4, 2)
    verify(plan, 16, hosts)


_WISHES = {
    "--num-replicas": "replicas",
    "--ipus-per-replica": "ipus_per_replica",
    "--num-instances": "instances",
    "--ipus": "ipus",
}


@pytest.mark.parametrize("pod", [None, "16", "128"])
def test_every_value_that_a_refusal_names_can_be_planned(pod: Optional[str], catalogue: Catalogue) -> None:
    named = dict.fromkeys(_WISHES, 0)
    machines = tuple(reference(f"h{i}", HostEntry(8, 16, 1), "given") for i in range(4))

    def request(hosts: int, ipus: int, **wishes: Any) -> Request:
        system = find(pod, catalogue) if pod else of_size(ipus)
        return Request("w", system, machines[:hosts], ipus=ipus, **wishes)

    counts = (None, 1, 3, 16, 24)
    for hosts, ipus, depth, replicas, instances in itertools.product(
        (1, 2, 4), (1, 7, 12, 16, 100), (1, 2, 3, 32), counts, counts
    ):
        wishes = {"hosts": hosts, "ipus": ipus, "ipus_per_replica": depth, "replicas": replicas, "instances": instances}
        try:
            solve(request(**wishes))
        except PlanError as error:
            match = re.fullmatch(r"use (--[a-z-]+) (\d+)(?: or (\d+))?", error.hint)
            for word in filter(None, match.groups()[1:]) if match else ():
                named[match[1]] += 1
                solve(request(**{**wishes, _WISHES[match[1]]: int(word)}))
    assert min(named.values()) > 10, named
