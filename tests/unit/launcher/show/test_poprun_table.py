from __future__ import annotations

from typing import Callable

import pytest

from ipulaunch.launcher.show.picture import draw_poprun_table, poprun_table_width
from ipulaunch.topology.planning.plan import Plan

MakePlan = Callable[..., Plan]

PUBLISHED = """\
 ===========================
|      poprun topology      |
|===========================|
| hosts     |   localhost   |
|-----------|---------------|
| ILDs      |       0       |
|-----------|---------------|
| instances |   0   |   1   |
|-----------|---------------|
| replicas  | 0 | 1 | 2 | 3 |
 ---------------------------"""

LONG_NAMES = """\
 ===========================
|      poprun topology      |
|===========================|
| hosts     |  [0]  | short |
|-----------|---------------|
| ILDs      |   0   |   1   |
|-----------|---------------|
| instances | 0 | 1 | 2 | 3 |
|-----------|---------------|
| replicas  | 0 | 1 | 2 | 3 |
 ---------------------------"""

TWO_DIGITS = """\
 ===========================================================================================
|                                      poprun topology                                      |
|===========================================================================================|
| hosts     |                                   localhost                                   |
|-----------|-------------------------------------------------------------------------------|
| ILDs      |                                       0                                       |
|-----------|-------------------------------------------------------------------------------|
| instances |         0         |         1         |         2         |         3         |
|-----------|-------------------------------------------------------------------------------|
| replicas  | 0  | 1  | 2  | 3  | 4  | 5  | 6  | 7  | 8  | 9  | 10 | 11 | 12 | 13 | 14 | 15 |
 -------------------------------------------------------------------------------------------"""

ONE_REPLICA = """\
 ===============
|poprun topology|
|===============|
| hosts     |[0]|
|-----------|---|
| ILDs      | 0 |
|-----------|---|
| instances | 0 |
|-----------|---|
| replicas  | 0 |
 ---------------"""


def test_published_table(make_plan: MakePlan) -> None:
    assert draw_poprun_table(make_plan(4, 2)) == PUBLISHED


def test_host_name_that_does_not_fit_is_its_index(make_plan: MakePlan) -> None:
    assert draw_poprun_table(make_plan(4, 4, hosts=("n1.example.org", "short"), ilds=2)) == LONG_NAMES


def test_host_name_may_fill_its_cell(make_plan: MakePlan) -> None:
    cells = draw_poprun_table(make_plan(4, 4, hosts=("seven77", "eight888"))).splitlines()[3]
    assert cells == "| hosts     |seven77|  [1]  |"


def test_cells_are_as_wide_as_the_largest_index(make_plan: MakePlan) -> None:
    assert draw_poprun_table(make_plan(16, 4)) == TWO_DIGITS


def test_one_replica(make_plan: MakePlan) -> None:
    assert draw_poprun_table(make_plan(1, 1)) == ONE_REPLICA


def test_odd_blank_goes_to_the_right(make_plan: MakePlan) -> None:
    assert draw_poprun_table(make_plan(4, 2, hosts=("even",))).splitlines()[3] == "| hosts     |     even      |"


def test_columns_line_up_for_every_size(make_plan: MakePlan) -> None:
    for hosts in (1, 2, 4):
        for replicas in (4, 8, 16, 64, 128):
            for instances in (4, 8, 16):
                if instances <= replicas:
                    lines = draw_poprun_table(
                        make_plan(replicas, instances, hosts=[f"n{i}" for i in range(hosts)])
                    ).splitlines()
                    assert {len(line) for line in lines[1:-1]} == {len(lines[0]) + 1} == {len(lines[-1]) + 1}
                    assert lines[7].count("|") == instances + 2


@pytest.mark.parametrize("replicas", [1, 4, 16, 128])
def test_width_is_known_before_it_is_drawn(replicas: int, make_plan: MakePlan) -> None:
    plan = make_plan(replicas, replicas)
    assert poprun_table_width(plan) == max(map(len, draw_poprun_table(plan).splitlines()))
