from __future__ import annotations

import json
from typing import Any, List

import pytest

from ipulaunch.configs.runs.job import Job
from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.plan import Plan, from_json, to_json
from ipulaunch.topology.planning.popdist import Place
from ipulaunch.workers.lifecycle.binding import Binding
from ipulaunch.workers.pasted_line import plan_of_pasted_line


def planned(*hosts: str, cpus: str = "", cores: int = 1) -> Plan:
    """The plan of instances on these hosts, as the first of them writes it; of a core of their own, or of these."""

    def each(text: str) -> List[str]:
        about = [{**json.loads(text), "host": host, "cpus": cpus or str(i)} for i, host in enumerate(hosts)]
        return [json.dumps(told) for told in about]

    count = len(hosts)
    place = Place(0, count, 0, count, 0, 2, 2 * count, 4)
    job: Any = Job("cosmoflow", "cpu", None)
    return plan_of_pasted_line(job, Batch(1, 2 * count, 3), place, Binding("0", cores, "default"), each)


@pytest.mark.parametrize(
    ("hosts", "named", "local"),
    [
        (("n1", "n1"), ("localhost",), [0, 1]),
        (("n1", "n1", "n2", "n2"), ("n1", "n2"), [0, 1, 0, 1]),
        (("n1", "n2", "n1", "n2"), ("n1", "n2"), [0, 0, 1, 1]),
        (("n1", "n 2"), ("n1", "host1"), [0, 0]),
    ],
    ids=["one", "blocks", "in-turn", "no-name"],
)
def test_every_instance_is_where_it_says(hosts: Any, named: Any, local: List[int]) -> None:
    plan = planned(*hosts)
    assert (plan.system, plan.replicas_per_instance, plan.ilds) == (f"{8 * len(hosts)} IPUs", 2, 1)
    assert (plan.hosts, [placement.local_index for placement in plan.placements]) == (named, local)
    assert [placement.cpus for placement in plan.placements] == [str(index) for index in range(len(hosts))]
    assert not plan.oversubscribed
    assert from_json(to_json(plan)) == plan


def test_more_instances_than_cores_share_them() -> None:
    assert planned("a", "a", cpus="0").oversubscribed
    assert planned("a", "a", cpus="0-1").oversubscribed  # two threads of a core
    assert not planned("a", "a", cpus="0-3", cores=4).oversubscribed
    assert not planned("a", "b", cpus="0").oversubscribed
