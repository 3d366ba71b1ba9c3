from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.launcher.engines.engine import Engine
from ipulaunch.launcher.engines.launch_options import LaunchOptions
from ipulaunch.launcher.engines.openmpi import OpenMpi
from ipulaunch.launcher.engines.poprun import Poprun
from ipulaunch.launcher.launch.elastic import planned_without
from ipulaunch.launcher.launch.launch import Launch, launch_again
from ipulaunch.launcher.launch.workload_planning import launch_workload
from ipulaunch.launcher.runs import attending
from ipulaunch.launcher.show.display import Display
from ipulaunch.launcher.supervise.endings import read_endings
from ipulaunch.launcher.supervise.stop_signals import StopSignals
from ipulaunch.launcher.supervise.verdict import Verdict
from ipulaunch.topology.planning.plan import from_json

POPRUN, OPENMPI = Poprun(), OpenMpi()
MakeLaunch = Callable[..., Launch]


@pytest.fixture()
def launch_on() -> MakeLaunch:
    """A launch on hosts of two NUMA nodes with eight cores each."""

    def make(engine: Engine, hosts: str, **settings: Any) -> Launch:
        resolved = resolve("cosmoflow", rehearsal=engine is OPENMPI)
        survival = dataclasses.replace(resolved.settings.survival, **settings)
        resolved = resolved._replace(settings=dataclasses.replace(resolved.settings, survival=survival))
        asked = LaunchOptions(pod="64", hosts=hosts, host_layout="2x8", oversubscribe=True)
        return launch_workload(resolved, asked, engine, None)

    return make


@pytest.mark.parametrize("engine", [POPRUN, OPENMPI], ids=["poprun", "openmpi"])
@pytest.mark.parametrize(
    ("hosts", "missing", "left"),
    [
        ("a,b", ["b"], ("a",)),
        ("a,b", ["a"], ("b",)),
        ("host[0-3]", ["host1", "host2"], ("host0", "host3")),
        ("host[0-3]", ["host0"], ("host1", "host2")),  # three do not divide 64 replicas
    ],
)
def test_the_plan_without_some_hosts_has_the_same_updates(
    engine: Engine, hosts: str, missing: Sequence[str], left: Sequence[str], launch_on: MakeLaunch
) -> None:
    launch = launch_on(engine, hosts)
    before = launch.solution.plan
    solution = planned_without(launch, missing)
    assert solution is not None
    plan = solution.plan
    assert plan.hosts == left
    assert (plan.replicas, plan.ipus_per_replica, plan.batch) == (
        before.replicas,
        before.ipus_per_replica,
        before.batch,
    )
    assert (plan.system, plan.instances_per_host) == (before.system, before.instances_per_host)


def test_where_no_host_is_left_there_is_no_plan(launch_on: MakeLaunch) -> None:
    assert planned_without(launch_on(OPENMPI, "a,b"), ["a", "b"]) is None


def test_poprun_is_given_the_hosts_that_are_left(launch_on: MakeLaunch, tmp_path: Path) -> None:
    launch = launch_on(POPRUN, "a,b")
    solution = planned_without(launch, ["b"])
    assert solution is not None and launch.job is not None
    argv = launch_again(solution, launch.job, launch.options, POPRUN, tmp_path).command.argv
    per_host = launch.solution.plan.instances_per_host
    assert argv[:4] == ("poprun", "--host=a", f"--num-instances={per_host}", "--num-replicas=64")


class Attended:
    """A run whose first attempt fails; at each restart the hosts are as the next of `troubles` tells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, troubles: Sequence[Dict[str, str]]) -> None:
        self.run, self.talk = RunDirectory(path / "run"), io.StringIO()
        self.run.path.mkdir()
        self.started: List[Launch] = []
        self.troubles = list(troubles)
        monkeypatch.setattr(attending, "run_attempt", self._attempt)
        monkeypatch.setattr(attending, "unready_hosts", lambda launch, path: self.troubles.pop(0))

    def attend(self, launch: Launch) -> int:
        with StopSignals() as signals:
            return attending.attend(launch, self.run, Display(self.talk, io.StringIO()), signals)

    def _attempt(self, launch: Launch, run: RunDirectory, display: Display, signals: StopSignals) -> Any:
        self.started.append(launch)
        return (Verdict(7, "host b was lost"), 1) if len(self.started) == 1 else (Verdict(0, "done"), 2)


B_IS_GONE = {"b": "does not answer (no route)"}


def test_elastic_hosts_that_do_not_answer_are_left_out(
    launch_on: MakeLaunch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Attended(monkeypatch, tmp_path, [B_IS_GONE])
    assert case.attend(launch_on(OPENMPI, "a,b", elastic_hosts=True, max_restarts=1, restart_backoff_s=0.0)) == 0
    again = case.started[1]
    assert again.solution.plan.hosts == ("a",)
    assert "host b does not answer (no route): going on with a\n" in case.talk.getvalue()
    assert from_json(case.run.plan.read_text()) == again.solution.plan
    assert again.command.shell() in case.run.command.read_text()


@pytest.mark.parametrize(
    ("elastic", "troubles"),
    [(False, B_IS_GONE), (True, {**B_IS_GONE, "a": "does not answer (no route)"})],
    ids=["not elastic", "none left"],
)
def test_nothing_is_started_before_all_hosts_are_back(
    elastic: bool,
    troubles: Dict[str, str],
    launch_on: MakeLaunch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch = launch_on(OPENMPI, "a,b", elastic_hosts=elastic, max_restarts=3, restart_backoff_s=0.0)
    case = Attended(monkeypatch, tmp_path, [troubles, troubles, {}])
    assert case.attend(launch) == 0
    assert [started.solution.plan.hosts for started in case.started] == [("a", "b")] * 2
    assert case.talk.getvalue().count("failed: not started: host b does not answer (no route)") == 2
    assert [ending.attempt for ending in read_endings(case.run)] == [1, 2, 3, 4]


def test_hosts_that_do_not_come_back_are_told(
    launch_on: MakeLaunch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Attended(monkeypatch, tmp_path, [B_IS_GONE])
    assert case.attend(launch_on(OPENMPI, "a,b", max_restarts=1, restart_backoff_s=0.0)) == 7
    assert len(case.started) == 1
    said = r"exit code 7 after \d+ s: not started: host b does not answer \(no route\)\n"
    assert re.search(said, case.talk.getvalue())
    assert "hint: --elastic-hosts" in case.talk.getvalue()


def test_poprun_is_not_kept_from_trying(launch_on: MakeLaunch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Attended(monkeypatch, tmp_path, [])
    assert case.attend(launch_on(POPRUN, "a,b", max_restarts=1, restart_backoff_s=0.0)) == 0
    assert case.started[1].solution.plan.hosts == ("a", "b")
