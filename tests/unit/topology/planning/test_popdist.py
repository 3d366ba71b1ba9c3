from __future__ import annotations

from typing import Callable, Dict

import pytest

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.topology.planning.popdist import Place, environment, read_place

# Four instances, eight replicas of two IPUs: the output of a public tutorial.
FOURTH = {
    "POPDIST_NUM_TOTAL_REPLICAS": "8",
    "POPDIST_NUM_IPUS_PER_REPLICA": "2",
    "POPDIST_NUM_LOCAL_REPLICAS": "2",
    "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
    "POPDIST_REPLICA_INDEX_OFFSET": "6",
    "POPDIST_LOCAL_INSTANCE_INDEX": "3",
}


def test_tutorial_example(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(8, 4, 2)
    environs = [environment(plan, placement) for placement in plan.placements]
    assert [environ["POPDIST_REPLICA_INDEX_OFFSET"] for environ in environs] == ["0", "2", "4", "6"]
    assert environs[3] == FOURTH


def test_published_log_of_one_instance(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan(16, 1, 4)
    assert environment(plan, plan.placements[0]) == {
        "POPDIST_NUM_TOTAL_REPLICAS": "16",
        "POPDIST_NUM_IPUS_PER_REPLICA": "4",
        "POPDIST_NUM_LOCAL_REPLICAS": "16",
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": "0",
        "POPDIST_LOCAL_INSTANCE_INDEX": "0",
    }


def test_instance_reads_the_place_it_was_given(make_plan: Callable[..., Plan]) -> None:
    for instances in (2, 4, 8, 16):
        plan = make_plan(16, instances, 2, hosts=("h0", "h1"))
        for placement in plan.placements:
            environ = {**environment(plan, placement), "OMPI_COMM_WORLD_LOCAL_SIZE": str(plan.instances_per_host)}
            assert read_place(environ) == Place(
                instance=placement.instance,
                instances=instances,
                local_index=placement.local_index,
                local_instances=instances // 2,
                first_replica=placement.first_replica,
                local_replicas=16 // instances,
                replicas=16,
                ipus_per_replica=2,
            )


def test_process_started_by_hand_is_the_only_instance() -> None:
    assert read_place({"HOME": "/"}) == Place(0, 1, 0, 1, 0, 1, 1, 1)


def test_without_open_mpi_all_instances_are_local() -> None:
    assert read_place(FOURTH).local_instances == 4


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"POPDIST_NUM_LOCAL_REPLICAS": "0"}, id="no local replicas"),
        pytest.param({"POPDIST_NUM_LOCAL_REPLICAS": "3"}, id="does not divide"),
        pytest.param({"POPDIST_NUM_LOCAL_REPLICAS": "16"}, id="more than there are"),
        pytest.param({"POPDIST_REPLICA_INDEX_OFFSET": "5"}, id="between two instances"),
        pytest.param({"POPDIST_REPLICA_INDEX_OFFSET": "8"}, id="behind the last"),
        pytest.param({"POPDIST_NUM_TOTAL_REPLICAS": "0"}, id="no replicas"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(change: Dict[str, str]) -> None:
    environ = {**FOURTH, **change}
    with pytest.raises(NotReadyError) as caught:
        read_place(environ)
    names = ("TOTAL_REPLICAS", "LOCAL_REPLICAS")
    assert all(f" {environ[f'POPDIST_NUM_{name}']} " in caught.value.message for name in names)
    assert caught.value.message.endswith(f"from index {environ['POPDIST_REPLICA_INDEX_OFFSET']}")
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", " 2", "²", "0x2"])
@pytest.mark.parametrize("name", [name for name in FOURTH if "UNIFORM" not in name])
def test_value_that_is_no_number_is_named(name: str, text: str) -> None:
    with pytest.raises(NotReadyError) as caught:
        read_place({**FOURTH, name: text})
    assert caught.value.message == f"{name} is {text!r}, expected a whole number"


def test_process_that_is_told_its_replicas_has_all_of_them() -> None:
    assert read_place({"HOME": "/"}, 4) == Place(0, 1, 0, 1, 0, 4, 4, 1)
    with pytest.raises(UsageError, match="--num-replicas is 0, expected at least 1"):
        read_place({}, 0)
    with pytest.raises(UsageError, match="--num-replicas 4, and POPDIST_NUM_TOTAL_REPLICAS is 8"):
        read_place(FOURTH, 4)
