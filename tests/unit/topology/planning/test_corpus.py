"""Published poprun commands (graphcore/examples, MLPerf 1.1 and 2.0, Paddle, ALCF and others) as plans.

A row of corpus.csv gives what the command says; blank is "not said". `system` is a POD or a number of IPUs, `default`
the number of instances that our default policy gives: a change of policy shows there.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

import pytest

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.pods import Catalogue
from ipulaunch.topology.machines.hosts import Host
from ipulaunch.topology.machines.pods import find, of_size
from ipulaunch.topology.planning.solver import Request, Solution, solve

Row = Dict[str, str]
Solve = Callable[..., Solution]

with Path(__file__).with_name("corpus.csv").open(encoding="utf-8", newline="") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}

BREAKS_R8 = "o38"  # 8 IPU-Link domains for 64 IPUs and 4 instances; put right in a later release


@pytest.fixture
def solved(catalogue: Catalogue, reference_hosts: Callable[[int], Tuple[Host, ...]]) -> Solve:
    def solve_row(row: Row, instances: Optional[int] = None, ilds: Optional[int] = None) -> Solution:
        system = of_size(int(row["system"])) if row["system"].isdigit() else find(row["system"], catalogue)
        used = int(row["replicas"]) * int(row["ipus_per_replica"])
        request = Request(
            workload=row["workload"],
            system=system,
            hosts=reference_hosts(int(row["hosts"] or system.hosts)),
            ipus_per_replica=int(row["ipus_per_replica"]),
            instances=instances,
            ilds=ilds,
            ipus=used if used < system.ipus else None,
            io_bound=row["workload"].startswith("CosmoFlow"),
        )
        return solve(request)

    return solve_row


def given_ilds(row: Row) -> Optional[int]:
    return int(row["ilds"]) if row["ilds"] and row["id"] != BREAKS_R8 else None


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_default_policy(row: Row, solved: Solve) -> None:
    plan = solved(row, ilds=given_ilds(row)).plan
    assert (plan.replicas, plan.instances) == (int(row["replicas"]), int(row["default"]))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_command_is_reached(row: Row, solved: Solve) -> None:
    asked, default = int(row["instances"]), int(row["default"])
    solution = solved(row, instances=asked, ilds=given_ilds(row))
    assert (solution.plan.replicas, solution.plan.instances) == (int(row["replicas"]), asked)
    why = {decision.name: decision.why for decision in solution.decisions}["instances"]
    if asked == default:
        assert why == "also the default"
    else:
        assert why.startswith(f"the default would be {default}: an instance per NUMA node (R10)")


def test_more_domains_than_instances_are_refused(solved: Solve) -> None:
    row = ROWS[BREAKS_R8]
    with pytest.raises(PlanError, match=r"4 instances for 8 IPU-Link domains.*\(R8\)") as caught:
        solved(row, instances=int(row["instances"]), ilds=int(row["ilds"]))
    assert caught.value.hint == "use --num-instances 8"
