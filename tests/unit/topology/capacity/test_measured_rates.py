"""Which of the numbers that a machine has measured count for the hosts of a plan."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology.capacity.chain import ASSUMED, GIVEN, MEASURED, PUBLISHED, Inputs
from ipulaunch.topology.capacity.given_rates import GivenRates, with_given
from ipulaunch.topology.capacity.known_rates import known_inputs
from ipulaunch.topology.capacity.measured_rates import with_measured
from ipulaunch.topology.capacity.ranges import Range, exactly
from ipulaunch.topology.planning.plan import Plan

RESULT: Dict[str, Any] = {
    "form": "jpeg",
    "stored_bytes": 1000.0,
    "samples_per_core_s": {"low": 100.0, "high": 200.0},
    "disk_bytes_per_s": {"low": 1e6, "high": 2e6},
    "memory_bytes_per_s": {"low": 1e9, "high": 2e9},
}


@pytest.fixture()
def inputs(make_plan: Callable[..., Plan]) -> Inputs:
    settings = resolve("imagenet", rehearsal=False, overrides=[assignment("data.directory=/set", "--set")]).settings
    return known_inputs("imagenet", settings, make_plan(16, 8), is_rehearsal=False)


def test_on_the_machine_itself_all_of_them(inputs: Inputs) -> None:
    found = with_measured(inputs, RESULT, is_here=True)
    assert found.stored and found.disk and found.prepare and found.memory
    assert found.stored.value == exactly(1000)
    assert found.disk.value == Range(1e6, 2e6) and found.memory.value == Range(1e9, 2e9)
    assert found.prepare.value == Range(100, 200)
    assert {each.origin for each in (found.stored, found.disk, found.prepare, found.memory)} == {MEASURED}
    assert (found.link, found.device) == (inputs.link, inputs.device)


def test_on_other_hosts_only_what_the_set_and_the_cores_tell(inputs: Inputs) -> None:
    found = with_measured(inputs, RESULT, is_here=False)
    assert found.stored and found.prepare and found.link
    assert (found.disk, found.memory) == (inputs.disk, inputs.memory)
    assert found.stored.origin == MEASURED
    assert found.prepare.origin == ASSUMED and "measured" in found.prepare.source
    assert found.prepare.value == Range(pytest.approx(67), pytest.approx(300))
    assert found.link.origin == PUBLISHED


def test_what_is_given_counts_most(inputs: Inputs) -> None:
    found = with_given(with_measured(inputs, RESULT, is_here=True), GivenRates(decode_rate=5, disk_rate=3))
    assert found.prepare and found.disk
    assert (found.prepare.value, found.prepare.origin) == (exactly(5), GIVEN)
    assert found.disk.value == exactly(3e9)


def test_a_rehearsal_has_the_rate_of_its_instances(inputs: Inputs) -> None:
    found = with_measured(inputs, {"device_samples_per_s": {"low": 4.0, "high": 6.0}}, is_here=True)
    assert found.device and (found.device.value, found.device.origin) == (Range(4, 6), MEASURED)
