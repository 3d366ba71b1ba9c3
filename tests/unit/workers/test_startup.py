"""What an instance knows before it imports TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable

import pytest
from fixtures.plans import plan_of

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.plan import Plan, to_json
from ipulaunch.topology.planning.popdist import environment, read_place
from ipulaunch.workers import startup
from ipulaunch.workers.lifecycle.binding import Binding

JOB = Job("mnist", "cpu", resolve("mnist", rehearsal=True).settings)


@pytest.fixture()
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Plan], RunDirectory]:
    """A run directory with a plan; what an instance would be bound to is not done."""
    for bind in ("bind_as_planned", "bind_share"):
        monkeypatch.setattr(startup, bind, lambda *given: Binding(str(given), 1, "default"))

    def write(plan: Plan) -> RunDirectory:
        run = RunDirectory(tmp_path)
        run.plan.write_text(to_json(plan))
        run.job.write_text(to_yaml(JOB))
        return run

    return write


def test_a_launched_instance_is_the_one_of_its_plan(
    launched: Callable[[Plan], RunDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(Batch(2, 4, 3), instances=2)
    for name, value in environment(plan, plan.placements[1]).items():
        monkeypatch.setenv(name, value)
    start = startup.start_launched(launched(plan), read_place(os.environ))
    assert (start.place.instance, start.batch, start.job) == (1, plan.batch, JOB)
    assert start.launched is not None and start.launched[1] == plan
    assert start.binding.cpus == str((plan.placements[1],))


@pytest.mark.parametrize(("local", "said"), [("4", "4 in 1"), ("1", "4 in 4")])
def test_variables_that_contradict_the_plan_are_refused(
    launched: Callable[[Plan], RunDirectory], monkeypatch: pytest.MonkeyPatch, local: str, said: str
) -> None:
    told = {"POPDIST_NUM_TOTAL_REPLICAS": "4", "POPDIST_NUM_LOCAL_REPLICAS": local}
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "4")
    with pytest.raises(NotReadyError, match=f"the plan has 4 replicas in 2 instances, POPDIST_.* say {said}"):
        startup.start_launched(launched(plan_of(Batch(2, 4, 3), instances=2)), read_place(told))


def test_a_process_alone_takes_all_replicas_from_its_plan(launched: Callable[[Plan], RunDirectory]) -> None:
    plan = plan_of(Batch(1, 8, 2), ipus_per_replica=4)
    start = startup.start_launched(launched(plan), read_place({}))
    assert (start.place.instances, start.place.local_replicas, start.place.replicas) == (1, 8, 8)
    assert start.place.ipus_per_replica == 4 and start.batch == plan.batch
    assert start.launched is not None and start.launched[1] == plan


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize(("backend", "ipus"), [("cpu", 1), ("ipu", 2)])
def test_a_pasted_line_takes_the_ipus_that_its_stages_need(backend: str, ipus: int) -> None:
    overrides = [assignment("pipeline.splits=[pool1]", "--set")]
    settings = resolve("cifar10", rehearsal=True, overrides=overrides).settings
    start = startup.start_pasted(Job("cifar10", backend, settings), read_place({}, 2))
    assert (start.place.ipus_per_replica, start.batch.replicas, start.launched) == (ipus, 2, None)
