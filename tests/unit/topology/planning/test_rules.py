from __future__ import annotations

import itertools
import re
from typing import Iterator, List

import pytest

from ipulaunch.configs.errors import PlanError
from ipulaunch.topology.machines.pods import usual_ilds
from ipulaunch.topology.planning.rules import RULES, Numbers, check, divisors, is_legal, legal_instances, refuse

GOOD = Numbers(
    replicas=16,
    instances=8,
    ipus_per_replica=1,
    system_ipus=16,
    numa_nodes_per_host=8,
    cores_per_host=128,
    min_cores_per_instance=4,
)

BROKEN = [
    pytest.param("R1", Numbers(16, 3, 1), ["16 replicas", "3 instances"], "--num-instances 2 or 4", id="R1"),
    pytest.param("R2", Numbers(4, 8, 1), ["8 instances", "4 replicas"], "--num-instances 4", id="R2 too many"),
    pytest.param("R2", Numbers(4, 0, 1), ["0 instances", "4 replicas"], "--num-instances", id="R2 none"),
    pytest.param("R3", Numbers(16, 2, 1, hosts=4), ["2 instances", "4 hosts"], "--num-instances 4", id="R3"),
    pytest.param("R3", Numbers(16, 8, 1, hosts=3), ["8 instances", "3 hosts"], "hosts", id="R3 no way"),
    pytest.param("R4", Numbers(8, 4, 4, system_ipus=16), ["= 32 IPUs", "has 16"], "--num-replicas 4", id="R4"),
    pytest.param(
        "R4", Numbers(1, 1, 8, system_ipus=4), ["= 8 IPUs", "has 4"], "--ipus-per-replica 4", id="R4 one replica"
    ),
    pytest.param("R5", Numbers(12, 4, 1), ["12 replicas", "12 IPUs"], "--num-replicas 8 or 16", id="R5"),
    pytest.param("R5", Numbers(6, 2, 2), ["6 replicas", "12 IPUs"], "--num-replicas 4 or 8", id="R5-depth"),
    pytest.param("R5", Numbers(6, 2, 2, system_ipus=12), ["12 IPUs"], "--num-replicas 4", id="R5-asked"),
    pytest.param(
        "R5", Numbers(6, 2, 2, system_ipus=12, free=("replicas",)), ["12 IPUs"], "--ipus 8 or 16", id="R5-system"
    ),
    pytest.param("R6", Numbers(1, 1, 32), ["32 IPUs", "1, 2, 4, 8 or 16"], "--ipus-per-replica 16", id="R6"),
    pytest.param("R8", Numbers(256, 2, 1, ilds=4), ["2 instances", "4 IPU-Link"], "--num-instances 4", id="R8"),
    pytest.param("R8", Numbers(2, 2, 1, ilds=4), ["2 instances", "4 IPU-Link"], "4 replicas", id="R8 no way"),
]

ADVICE = [
    pytest.param("R4", GOOD._replace(replicas=8), ["= 8 IPUs of 16", "8 IPUs stay idle"], "16 replicas", id="R4"),
    pytest.param("R7", Numbers(64, 8, 1, ilds=8), ["8 IPU-Link", "64 IPUs", "1 is usual"], "use 1", id="R7 many"),
    pytest.param("R7", Numbers(128, 8, 1, ilds=1), ["1 IPU-Link", "128 IPUs", "2 is usual"], "use 2", id="R7 few"),
    pytest.param(
        "R10", GOOD._replace(instances=16), ["16 instances per host", "8 NUMA nodes"], "at most 8 instances", id="R10"
    ),
    pytest.param(
        "R13", GOOD._replace(cores_per_host=12), ["8 instances on 12 cores", "1.5 each", "the 4"], "fewer", id="R13"
    ),
]


def test_good_numbers_break_nothing() -> None:
    assert check(GOOD) == []
    assert refuse(GOOD) == []


def test_every_rule_is_broken_by_a_row() -> None:
    assert {row.values[0] for row in BROKEN + ADVICE} == set(RULES)


@pytest.mark.parametrize(("rule", "numbers", "parts", "hint"), BROKEN)
def test_hard_rule_refuses_with_both_numbers_and_a_way_out(
    rule: str, numbers: Numbers, parts: List[str], hint: str
) -> None:
    assert [found.rule for found in check(numbers) if found.hard] == [rule]
    with pytest.raises(PlanError) as caught:
        refuse(numbers)
    assert all(part in caught.value.message for part in parts)
    assert caught.value.message.endswith(f"({rule})")
    assert hint in caught.value.hint


@pytest.mark.parametrize(("rule", "numbers", "parts", "hint"), ADVICE)
def test_soft_rule_warns_with_both_numbers_and_a_way_out(
    rule: str, numbers: Numbers, parts: List[str], hint: str
) -> None:
    (warning,) = refuse(numbers)
    message, _, advice = warning.partition(f" ({rule}); ")
    assert all(part in message for part in parts)
    assert hint in advice


@pytest.mark.parametrize(
    ("numbers", "rules"),
    [
        pytest.param(GOOD._replace(instances=16, io_bound=True), [], id="R10 does not hold for IO-bound work"),
        pytest.param(GOOD._replace(cores_per_host=None), [], id="R13 needs cores"),
        pytest.param(GOOD._replace(cores_per_host=32), [], id="R13 at the limit"),
        pytest.param(GOOD._replace(cores_per_host=31), ["R13"], id="R13 below the limit"),
        pytest.param(GOOD._replace(system_ipus=None), [], id="R4 needs a system"),
        pytest.param(GOOD._replace(hosts=2, numa_nodes_per_host=4), [], id="R10 counts per host"),
        pytest.param(Numbers(16, 8, 8, ilds=2), [], id="128 IPUs have two domains"),
    ],
)
def test_limits_of_the_rules(numbers: Numbers, rules: List[str]) -> None:
    assert [found.rule for found in check(numbers)] == rules


def test_hard_findings_come_first() -> None:
    findings = check(Numbers(12, 5, 3, ilds=2, numa_nodes_per_host=1))
    hard = [found.hard for found in findings]
    assert hard == sorted(hard, reverse=True)
    assert {found.rule for found in findings} == {"R1", "R5", "R6", "R7", "R8", "R10"}


def launches() -> Iterator[Numbers]:
    """Launches of all kinds, most of them illegal."""
    for replicas, depth in itertools.product((1, 3, 4, 12, 16, 256), (1, 2, 3, 16)):
        for instances, hosts in itertools.product((1, 2, 3, 8), (1, 2, 3)):
            for system, ilds in itertools.product((None, 7, 12, 16), (None, 3, 4)):
                domains, free = (ilds, ()) if ilds else (usual_ilds(replicas * depth), ("ilds",))
                yield Numbers(replicas, instances, depth, hosts, domains, system, free=free)


def test_legal_is_what_breaks_no_hard_rule() -> None:
    found = [(is_legal(n), any(finding.hard for finding in check(n))) for n in launches()]
    assert set(found) == {(True, False), (False, True)}


_FIELDS = {"--num-replicas": "replicas", "--ipus-per-replica": "ipus_per_replica", "--num-instances": "instances"}


def test_every_value_that_a_hint_names_is_legal() -> None:
    named = dict.fromkeys(_FIELDS, 0)
    for numbers in launches():
        first = next((found for found in check(numbers) if found.hard), None)
        match = first and re.fullmatch(r"use (--[a-z-]+) (\d+)(?: or (\d+))?", first.hint)
        for word in filter(None, match.groups()[1:]) if match else ():
            named[match[1]] += 1
            changed = numbers._replace(**{_FIELDS[match[1]]: int(word)})
            if "ilds" in numbers.free:
                changed = changed._replace(ilds=usual_ilds(changed.ipus))
            assert [found for found in check(changed) if found.hard] == [], (first, changed)
    assert min(named.values()) > 20, named


def test_advice_to_use_more_replicas_is_legal() -> None:
    for numbers in launches():
        for found in check(numbers):
            match = re.match(r"(\d+) replicas would use", found.hint)
            if match and is_legal(numbers):
                ilds = usual_ilds(int(match[1]) * numbers.ipus_per_replica) if numbers.free else numbers.ilds
                assert is_legal(numbers._replace(replicas=int(match[1]), ilds=ilds))


def test_what_nobody_asked_for_follows() -> None:
    n = Numbers(12, 12, 1, hosts=2, free=("instances",))
    assert next(found.hint for found in check(n)) == "use --num-replicas 8 or 16"
    n = Numbers(12, 12, 1, hosts=2)
    assert next(found.hint for found in check(n)) == "use powers of two for replicas, instances and hosts"
    assert legal_instances(n._replace(replicas=8)) == [2, 4, 8]


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [1]), (7, [1, 7]), (12, [1, 2, 3, 4, 6, 12]), (16, [1, 2, 4, 8, 16])]
)
def test_divisors(number: int, expected: List[int]) -> None:
    assert divisors(number) == expected
