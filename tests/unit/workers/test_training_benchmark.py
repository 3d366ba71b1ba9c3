"""benchmarks/training.py: its verdict, with measurements that are made up, and its measurements, of tiny jobs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any, List

import pytest

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.events import Log, Update
from ipulaunch.topology import Batch, Plan
from ipulaunch.topology.planning.plan import Placement, to_json

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture()
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    path = BENCHMARKS / "training.py"
    spec = importlib.util.spec_from_file_location("training_benchmark", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HAS_HOROVOD", False)
    return module


@pytest.mark.parametrize(
    ("ours", "added", "recording", "missed"),
    [
        (10.0, 0.029, 0.0099, []),
        (9.0, 0.0, 0.0, ["ipulaunch / Keras is 0.90, the goal is 1"]),
        (11.0, 0.05, 0.0, ["fit adds 5.0% to an update, the goal is below 3%"]),
        (11.0, 0.0, 0.02, ["recording the times takes 2.00% of an update, the goal is below 1%"]),
    ],
    ids=["reached", "slower than Keras", "adds too much", "records too much"],
)
def test_a_goal_that_is_missed_fails_after_everything_is_measured(
    ours: float,
    added: float,
    recording: float,
    missed: List[str],
    benchmark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {"keras": {"samples_per_s": 10.0}, "recording": {"update": 1.0, "recording": recording}}
    monkeypatch.setattr(benchmark, "through_ipulaunch", lambda name, directory: ours)
    monkeypatch.setattr(benchmark, "in_a_process", lambda name, what: figures[what])
    monkeypatch.setattr(benchmark, "in_two_instances", lambda name, directory: {"bare": 0.01, "added": added})
    assert benchmark.main(["1"]) == (1 if missed else 0)
    expected = [f"missed: {name}: {each}" for name in ("cosmoflow", "cifar10") for each in missed]
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("missed")] == expected


def test_our_rate_is_taken_by_the_clock(benchmark: Any, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.instance(0).mkdir()
    times = ((10**9, Log(2, 4.0, 8, 1, {})), (2 * 10**9, Update(12, 4.0, {})), (3 * 10**9, Log(2, 4.0, 16, 2, {})))
    run.events(0).write_text("".join(json.dumps({"time_ns": ns, **event.to_json()}) + "\n" for ns, event in times))
    placement = Placement(0, "localhost", 0, (0,), 2, "0-1", 0)
    run.plan.write_text(to_json(Plan("cosmoflow", "pod4", 4, 1, 1, Batch(3, 4, 2), (placement,), False)))
    assert benchmark.rate_of(tmp_path) == 8 * 24 / 2
