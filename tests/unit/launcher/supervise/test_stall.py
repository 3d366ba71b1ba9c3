from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Dict, List, Set

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.launcher.supervise.stall import Hang, StallWatch
from ipulaunch.topology.planning.plan import Plan


class Case:
    """A run of eight instances on two hosts, its clock, and what the hosts answer."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.run, self.now = RunDirectory(directory), 0.0
        self.troubles: Dict[str, str] = {}
        self.joining: Set[int] = set()
        self.asked: List[float] = []
        for instance in range(plan.instances):
            self.run.instance(instance).mkdir()
            self.run.heartbeat(instance).touch()
        self.watch = StallWatch(
            self.run, plan, 10.0, clock=lambda: self.now, ask_hosts=self._ask, joining=lambda: self.joining
        )

    def _ask(self) -> Dict[str, str]:
        self.asked.append(self.now)
        return self.troubles


@pytest.fixture()
def case(tmp_path: Path, make_plan: Callable[..., Plan]) -> Case:
    return Case(tmp_path, make_plan(8, 8, hosts=("a", "b")))


def test_a_run_that_moves_does_not_hang(case: Case) -> None:
    for _ in range(5):
        case.now += 9.0
        assert case.watch.verdict() is None
        case.watch.saw_progress()
    assert case.asked == []


def test_instances_get_the_time_to_dump_their_stacks(case: Case) -> None:
    case.now = 11.0
    assert case.watch.verdict() is None
    case.now = 12.5
    hint = "if they only need longer, raise --stall-timeout"
    assert case.watch.verdict() == Hang("no progress for 10 s: all instances live, and wait", 0, hint)


def test_who_is_silent_is_named(case: Case) -> None:
    os.utime(case.run.heartbeat(4), (0, 0))
    case.now = 60.0
    assert case.watch.verdict() == Hang("no progress for 10 s: b:4 stopped showing signs of life", 4)


def test_who_never_started_is_named(case: Case) -> None:
    case.run.heartbeat(0).unlink()
    case.now = 60.0
    verdict = case.watch.verdict()
    assert verdict is not None and "a:0 stopped" in verdict.said


def test_who_waits_for_others_is_not_named(case: Case) -> None:
    """They show no signs of life before they have met: the one they wait for is to blame."""
    for instance in (0, 3):
        os.utime(case.run.heartbeat(instance), (0, 0))
    case.joining = {0}
    case.now = 60.0
    assert case.watch.verdict() == Hang("no progress for 10 s: a:3 stopped showing signs of life", 3)


def test_who_lives_is_not_named_where_others_wait_for_it(case: Case) -> None:
    os.utime(case.run.heartbeat(0), (0, 0))
    case.joining = {0}
    case.now = 60.0
    verdict = case.watch.verdict()
    assert verdict is not None and "all instances live, and wait" in verdict.said


def test_all_are_named_where_each_waits_for_the_others(case: Case) -> None:
    for instance in range(8):
        os.utime(case.run.heartbeat(instance), (0, 0))
    case.joining = set(range(8))
    case.now = 60.0
    verdict = case.watch.verdict()
    assert verdict is not None and "a:0, a:1, a:2, a:3 and 4 more stopped" in verdict.said


def test_not_all_of_many_are_named(case: Case) -> None:
    for instance in range(8):
        case.run.heartbeat(instance).unlink()
    case.now = 60.0
    said = "no progress for 10 s: a:0, a:1, a:2, a:3 and 4 more stopped showing signs of life"
    assert case.watch.verdict() == Hang(said, 0)


def test_a_host_that_does_not_answer_is_named_although_its_heartbeats_go_on(case: Case) -> None:
    case.troubles = {"b": "does not answer (no route)"}
    case.now = 60.0
    assert case.watch.verdict() == Hang("no progress for 10 s: host b does not answer (no route)", 4)


def test_hosts_are_asked_once_and_the_verdict_stays(case: Case) -> None:
    case.troubles = {"b": "does not answer (no route)"}
    case.now = 60.0
    first = case.watch.verdict()
    case.watch.saw_progress()  # a last record, read while the run is ended
    case.troubles = {}
    assert case.watch.verdict() == first and case.asked == [60.0]
