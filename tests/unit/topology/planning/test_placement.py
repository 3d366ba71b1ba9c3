from __future__ import annotations

from typing import Callable, List, Sequence, Set, Tuple

import pytest

from ipulaunch.topology.machines import cpulist
from ipulaunch.topology.machines.hosts import NumaNode
from ipulaunch.topology.planning.placement import Share, divide, oversubscribe

MakeNodes = Callable[..., Tuple[NumaNode, ...]]


def cpus_of(nodes: Sequence[NumaNode]) -> Set[int]:
    return {thread for node in nodes for core in node.cores for thread in core}


@pytest.mark.parametrize(
    ("sizes", "threads", "instances", "shares"),
    [
        pytest.param([4], 1, 1, [Share((0,), 4, "0-3")], id="one takes all"),
        pytest.param([4], 1, 2, [Share((0,), 2, "0-1"), Share((0,), 2, "2-3")], id="half each"),
        pytest.param([2, 2], 2, 2, [Share((0,), 2, "0-1,4-5"), Share((1,), 2, "2-3,6-7")], id="a node each, SMT"),
        pytest.param([2, 2], 2, 4, [Share((i // 2,), 1, f"{i},{i + 4}") for i in range(4)], id="a core each, SMT"),
        pytest.param([2, 2], 1, 1, [Share((0, 1), 4, "0-3")], id="all nodes"),
        pytest.param([2] * 4, 1, 2, [Share((0, 1), 4, "0-3"), Share((2, 3), 4, "4-7")], id="two nodes each"),
        pytest.param([1, 3, 4, 4], 1, 2, [Share((0, 1), 4, "0-3"), Share((2, 3), 8, "4-11")], id="whole nodes first"),
        pytest.param([5], 1, 2, [Share((0,), 3, "0-2"), Share((0,), 2, "3-4")], id="larger first"),
        pytest.param(
            [43, 43, 42],
            1,
            3,
            [Share((0,), 43, "0-42"), Share((1,), 43, "43-85"), Share((2,), 42, "86-127")],
            id="uneven nodes",
        ),
        pytest.param(
            [43, 43, 42],
            1,
            6,
            [
                Share((0,), 22, "0-21"),
                Share((0,), 21, "22-42"),
                Share((1,), 22, "43-64"),
                Share((1,), 21, "65-85"),
                Share((2,), 21, "86-106"),
                Share((2,), 21, "107-127"),
            ],
            id="uneven nodes halved",
        ),
        pytest.param(
            [43, 43, 42], 1, 2, [Share((0, 1), 64, "0-63"), Share((1, 2), 64, "64-127")], id="across where it must"
        ),
    ],
)
def test_divide(sizes: List[int], threads: int, instances: int, shares: List[Share], make_nodes: MakeNodes) -> None:
    assert divide(make_nodes(sizes, threads), instances) == shares


LAYOUTS = [[1], [2], [5], [4, 4], [3, 5], [1, 7], [43, 43, 42], [2, 2, 2, 2], [1, 1, 6], [16] * 8]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", LAYOUTS, ids=str)
def test_cores_are_all_given_out_once(sizes: List[int], threads: int, make_nodes: MakeNodes) -> None:
    nodes = make_nodes(sizes, threads)
    by_node = {node.number: cpus_of([node]) for node in nodes}
    for instances in range(1, sum(sizes) + 1):
        shares = divide(nodes, instances)
        taken = [cpu for share in shares for cpu in cpulist.parse(share.cpus)]
        assert len(shares) == instances
        assert len(taken) == len(set(taken))
        assert set(taken) == cpus_of(nodes)
        for share in shares:
            cpus = set(cpulist.parse(share.cpus))
            assert share.cores * threads == len(cpus) > 0
            assert share.numa_nodes == tuple(index for index in by_node if cpus & by_node[index])


@pytest.mark.parametrize("sizes", [[4, 4], [16] * 8, [43, 43, 42]], ids=str)
def test_instances_that_are_a_multiple_of_the_nodes_stay_on_one(sizes: List[int], make_nodes: MakeNodes) -> None:
    for per_node in range(1, min(sizes) + 1):
        shares = divide(make_nodes(sizes), per_node * len(sizes))
        assert [share.numa_nodes for share in shares] == [(i,) for i in range(len(sizes)) for _ in range(per_node)]


@pytest.mark.parametrize("sizes", [[1], [2], [1, 2], [4, 4]], ids=str)
def test_more_instances_than_cores_take_turns(sizes: List[int], make_nodes: MakeNodes) -> None:
    nodes, total = make_nodes(sizes, 2), sum(sizes)
    for instances in range(total, 4 * total + 1):
        shares = oversubscribe(nodes, instances)
        users = [sum(share.cpus == cpus for share in shares) for cpus in {share.cpus for share in shares}]
        assert (len(shares), len(users), {share.cores for share in shares}) == (instances, total, {1})
        assert max(users) - min(users) <= 1
        assert {cpu for share in shares for cpu in cpulist.parse(share.cpus)} == cpus_of(nodes)
