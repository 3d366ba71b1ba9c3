from __future__ import annotations

import json
from typing import Any, Callable, Dict

import pytest

from ipulaunch.configs.errors import PlanError
from ipulaunch.topology import Batch, Placement, Plan
from ipulaunch.topology.planning.plan import from_json, to_json


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    return make_plan(8, 4, 2, hosts=("h0", "h1"))


def test_numbers_of_a_plan(plan: Plan) -> None:
    assert (plan.ipus, plan.instances, plan.replicas_per_instance) == (16, 4, 2)
    assert (plan.hosts, plan.instances_per_host) == (("h0", "h1"), 2)


def test_arithmetic_is_one_line(plan: Plan) -> None:
    assert plan.formula == (
        "16 IPUs = 8 replicas x 2; 4 instances x 2 replicas;"
        " global batch 8 = micro-batch 1 x 8 replicas x accumulation 1"
    )


def test_placements_are_complete(plan: Plan) -> None:
    nodes = (0, 1, 2, 3)
    assert plan.placements[:2] == (
        Placement(0, "h0", 0, nodes, 64, "0-63,128-191", first_replica=0),
        Placement(1, "h0", 1, (4, 5, 6, 7), 64, "64-127,192-255", first_replica=2),
    )
    assert plan.placements[2] == Placement(2, "h1", 0, nodes, 64, "0-63,128-191", first_replica=4)


def test_plan_is_frozen(plan: Plan) -> None:
    with pytest.raises(AttributeError):
        plan.replicas = 4  # type: ignore[misc]


def test_json_gives_back_an_equal_plan(make_plan: Callable[..., Plan]) -> None:
    for instances in (1, 2, 4, 8, 16):
        for hosts in (["localhost"], ["n1"], ["n-1.example.org"]):
            plan = make_plan(16, instances, 4, hosts=hosts)
            assert from_json(to_json(plan)) == plan
            assert hash(from_json(to_json(plan))) == hash(plan)


def test_json_keeps_every_field(plan: Plan) -> None:
    odd = plan._replace(ilds=2, oversubscribed=True, batch=Batch(3, 8, 5), workload="w", system="s")
    assert from_json(to_json(odd)) == odd


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", "1", '"plan"', "{", "[" * 5000, '{"format": 1}', '{"format": 1, "placements": []}'],
    ids=lambda text: text[:16] or "empty",
)
def test_text_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"^this is not a plan") as caught:
        from_json(text)
    assert caught.value.hint


def test_half_a_plan_is_refused(plan: Plan) -> None:
    text = to_json(plan)
    for end in range(0, len(text) - 2, 97):
        with pytest.raises(PlanError, match=r"^this is not a plan"):
            from_json(text[:end])


def test_plan_without_one_of_its_keys_is_refused(plan: Plan) -> None:
    for key in json.loads(to_json(plan)):
        data = json.loads(to_json(plan))
        del data[key]
        with pytest.raises(PlanError, match=r"^this is not a plan"):
            from_json(json.dumps(data))


Damage = Callable[[Dict[str, Any]], Any]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda d: d.update(format=2), id="another format"),
        pytest.param(lambda d: d.update(extra=1), id="unknown key"),
        pytest.param(lambda d: d.update(workload=1), id="workload is a number"),
        pytest.param(lambda d: d.update(system=None), id="system is null"),
        pytest.param(lambda d: d.update(oversubscribed="no"), id="oversubscribed is text"),
        pytest.param(lambda d: d.update(replicas="8"), id="replicas are text"),
        pytest.param(lambda d: d.update(replicas=8.0), id="replicas are a fraction"),
        pytest.param(lambda d: d.update(replicas=0), id="no replicas"),
        pytest.param(lambda d: d.update(replicas=16), id="other replicas than the batch"),
        pytest.param(lambda d: d.update(replicas=6, batch={**d["batch"], "replicas": 6}), id="replicas do not divide"),
        pytest.param(lambda d: d.update(ipus_per_replica=-1), id="negative IPUs"),
        pytest.param(lambda d: d.update(ilds=True), id="domains are true"),
        pytest.param(lambda d: d.update(batch=None), id="no batch"),
        pytest.param(lambda d: d["batch"].update(micro_size=0), id="no micro-batch"),
        pytest.param(lambda d: d["batch"].update(accumulation=1.5), id="half an accumulation"),
        pytest.param(lambda d: d["batch"].update(more=1), id="unknown key in the batch"),
        pytest.param(lambda d: d.update(placements=[]), id="no placements"),
        pytest.param(lambda d: d.update(placements={}), id="placements are an object"),
        pytest.param(lambda d: d.update(placements=[None]), id="placement is null"),
        pytest.param(lambda d: d["placements"].pop(), id="instance missing"),
        pytest.param(lambda d: d["placements"].reverse(), id="instances reversed"),
        pytest.param(lambda d: d["placements"].append(d["placements"][0]), id="instance twice"),
        pytest.param(lambda d: d["placements"][1].update(instance=2), id="wrong instance"),
        pytest.param(lambda d: d["placements"][1].update(first_replica=3), id="wrong replica"),
        pytest.param(lambda d: d["placements"][1].update(local_index=0), id="wrong index on its host"),
        pytest.param(lambda d: d["placements"][1].update(local_index="1"), id="index is text"),
        pytest.param(lambda d: d["placements"][1].update(host=7), id="host is a number"),
        pytest.param(lambda d: d["placements"][1].update(host=""), id="host without name"),
        pytest.param(lambda d: d["placements"][1].update(numa_nodes=0), id="NUMA nodes are a number"),
        pytest.param(lambda d: d["placements"][1].update(numa_nodes="45"), id="NUMA nodes are text"),
        pytest.param(lambda d: d["placements"][1].update(numa_nodes=[4, "5"]), id="NUMA node is text"),
        pytest.param(lambda d: d["placements"][1].update(cores=0), id="no cores"),
        pytest.param(lambda d: d["placements"][1].update(cores="64"), id="cores are text"),
        pytest.param(lambda d: d["placements"][1].update(cpus="64-"), id="CPUs cut off"),
        pytest.param(lambda d: d["placements"][1].update(cpus=64), id="CPUs are a number"),
        pytest.param(lambda d: d["placements"][1].update(cpus=""), id="no CPUs"),
        pytest.param(lambda d: d["placements"][1].pop("cpus"), id="CPUs missing"),
        pytest.param(lambda d: d["placements"][1].update(more=1), id="unknown key in a placement"),
    ],
)
def test_damaged_plan_is_refused(damage: Damage, plan: Plan) -> None:
    data = json.loads(to_json(plan))
    damage(data)
    with pytest.raises(PlanError, match=r"^this is not a plan") as caught:
        from_json(json.dumps(data))
    assert caught.value.hint


def test_an_instance_asks_for_its_replicas_and_its_neighbours(plan: Plan) -> None:
    assert [plan.replicas_of(index) for index in range(4)] == [range(2), range(2, 4), range(4, 6), range(6, 8)]
    assert [plan.neighbours_of(index) for index in range(4)] == [2, 2, 2, 2]
