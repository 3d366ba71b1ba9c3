from __future__ import annotations

from typing import Callable

import pytest

from ipulaunch.launcher.show.picture import draw_plan, table
from ipulaunch.topology.planning.plan import Plan

MakePlan = Callable[..., Plan]

TWO_NODES = """\
localhost
├─ NUMA 0
│    instance 0  2 cores (cpus 0-1)  replicas 0-1  IPUs 0-7
│    instance 1  2 cores (cpus 2-3)  replicas 2-3  IPUs 8-15
└─ NUMA 1
     instance 2  2 cores (cpus 4-5)  replicas 4-5  IPUs 16-23
     instance 3  2 cores (cpus 6-7)  replicas 6-7  IPUs 24-31"""

TWO_HOSTS = """\
a
└─ NUMA 0-3
     instance 0  4 cores (cpus 0-3)  replica 0  IPU 0
b
└─ NUMA 0-3
     instance 1  4 cores (cpus 0-3)  replica 1  IPU 1"""

SIXTEEN = """\
localhost
└─ NUMA 0
     instance 0   1 core (cpus 0)   replica 0   IPU 0
     instance 1   1 core (cpus 1)   replica 1   IPU 1
     instance 2   1 core (cpus 2)   replica 2   IPU 2
     instance 3   1 core (cpus 3)   replica 3   IPU 3
     instance 4   1 core (cpus 4)   replica 4   IPU 4
     instance 5   1 core (cpus 5)   replica 5   IPU 5
     instance 6   1 core (cpus 6)   replica 6   IPU 6
     instance 7   1 core (cpus 7)   replica 7   IPU 7
     instance 8   1 core (cpus 8)   replica 8   IPU 8
     instance 9   1 core (cpus 9)   replica 9   IPU 9
     instance 10  1 core (cpus 10)  replica 10  IPU 10
     instance 11  1 core (cpus 11)  replica 11  IPU 11
     instance 12  1 core (cpus 12)  replica 12  IPU 12
     instance 13  1 core (cpus 13)  replica 13  IPU 13
     instance 14  1 core (cpus 14)  replica 14  IPU 14
     instance 15  1 core (cpus 15)  replica 15  IPU 15"""


def test_instances_under_their_numa_node(make_plan: MakePlan) -> None:
    assert draw_plan(make_plan(8, 4, 4, layout=(2, 4))) == TWO_NODES


def test_every_host_of_a_few(make_plan: MakePlan) -> None:
    assert draw_plan(make_plan(2, 2, hosts=("a", "b"), layout=(4, 1))) == TWO_HOSTS


def test_columns_are_aligned(make_plan: MakePlan) -> None:
    assert draw_plan(make_plan(16, 16, layout=(1, 16))) == SIXTEEN


def test_many_hosts_are_the_first_and_the_last(make_plan: MakePlan) -> None:
    lines = draw_plan(make_plan(8, 8, hosts=[f"h{n}" for n in range(8)], layout=(1, 2))).splitlines()
    assert [line for line in lines if line.startswith("h")] == ["h0", "h7"]
    assert "... 6 more hosts with 1 instance each; ipulaunch plan --all shows them ..." in lines
    assert lines[-1].split()[:2] == ["instance", "7"]


@pytest.mark.parametrize(("instances", "more"), [(16, 0), (32, 16), (64, 48)])
def test_many_instances_are_counted(instances: int, more: int, make_plan: MakePlan) -> None:
    lines = draw_plan(make_plan(instances, instances, layout=(1, 64))).splitlines()
    assert sum("instance " in line for line in lines) == 16
    left_out = [f"... {more} more instances; ipulaunch plan --all shows them ..."] if more else []
    assert [line.strip() for line in lines if "more" in line] == left_out


def test_all_hosts_and_instances_on_request(make_plan: MakePlan) -> None:
    plan = make_plan(256, 256, hosts=[f"h{n}" for n in range(8)], layout=(1, 32))
    lines = draw_plan(plan, whole=True).splitlines()
    numbers = [int(line.split()[1]) for line in lines if line.lstrip("│ ").startswith("instance ")]
    assert (numbers, sum(line.startswith("h") for line in lines)) == (list(range(256)), 8)


def test_picture_of_a_large_plan_fits_a_screen(make_plan: MakePlan) -> None:
    lines = draw_plan(make_plan(4096, 1024, 16, hosts=[f"host{n:03}" for n in range(128)])).splitlines()
    assert len(lines) < 50
    assert max(map(len, lines)) < 100


def test_table_is_aligned() -> None:
    rows = [("a", "long", "x"), ("long", "b", ""), ("", "", "z")]
    assert table(rows) == "a     long  x\nlong  b\n            z"
