from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from ipulaunch.topology import Plan
from ipulaunch.topology.planning.popdist import environment
from ipulaunch.workers import programs

OURS = str(Path(programs.__file__).parent)


@pytest.fixture
def popdist(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Imports popdist as a program does whose path has these directories, and ours last."""

    def load(*before: Path) -> Any:
        for name in [name for name in sys.modules if name.split(".")[0] == "popdist"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "path", [*map(str, before), *sys.path, OURS])
        importlib.invalidate_caches()
        module = importlib.import_module("popdist")
        monkeypatch.setitem(sys.modules, "popdist", module)  # so that it leaves with this test
        return module

    return load


@pytest.mark.parametrize("instance", [0, 3])
def test_an_instance_learns_its_place(
    instance: int, popdist: Callable[..., Any], make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(8, 4, 2, hosts=("a", "b"))
    for name, value in environment(plan, plan.placements[instance]).items():
        monkeypatch.setenv(name, value)
    found = popdist()
    assert found.isPopdistEnvSet()
    assert (found.getInstanceIndex(), found.getNumInstances()) == (instance, 4)
    assert (found.getReplicaIndexOffset(), found.getNumLocalReplicas()) == (2 * instance, 2)
    assert (found.getNumTotalReplicas(), found.getNumIpusPerReplica()) == (8, 2)
    assert found.getLocalInstanceIndex() == plan.placements[instance].local_index
    assert (found.checkNumIpusPerReplica(2), found.checkNumIpusPerReplica(4)) == (True, False)
    assert found.execute_on_instances({instance}, max, 1, 2) == 2
    assert found.execute_on_instances({instance + 1}, max, 1, 2) is None


def test_a_process_without_a_launcher_is_alone(popdist: Callable[..., Any]) -> None:
    found = popdist()
    assert not found.isPopdistEnvSet()
    assert (found.getInstanceIndex(), found.getNumInstances(), found.getNumTotalReplicas()) == (0, 1, 1)
    found.init()
    assert found.isBackendInitialized()
    found.finalizeBackend()
    assert not found.isBackendInitialized()


def test_what_needs_ipus_is_refused(popdist: Callable[..., Any]) -> None:
    found = popdist()
    with pytest.raises(RuntimeError, match=r"getDeviceId\(\) needs IPUs and the Poplar SDK, and this is a rehearsal"):
        found.getDeviceId()
    with pytest.raises(AttributeError, match=r"popdist\.getDevice needs IPUs"):
        found.getDevice()
    of_tensorflow = importlib.import_module("popdist.tensorflow")
    with pytest.raises(RuntimeError, match=r"popdist\.tensorflow\.set_ipu_config\(\) needs IPUs"):
        of_tensorflow.set_ipu_config(None, ipus_per_replica=1)


@pytest.mark.parametrize("place", ["before", "after"])
def test_the_popdist_of_the_sdk_takes_the_place(
    place: str, popdist: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "popdist").mkdir()
    (tmp_path / "popdist" / "__init__.py").write_text("from popdist.version import number\n")
    (tmp_path / "popdist" / "version.py").write_text("number = '3.4'\n")
    if place == "after":
        monkeypatch.setattr(sys, "path", [OURS, *sys.path, str(tmp_path)])
    found = popdist(*([tmp_path] if place == "before" else []))
    assert (found.number, Path(found.__file__).parents[1]) == ("3.4", tmp_path)
