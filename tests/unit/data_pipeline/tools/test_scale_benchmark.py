"""benchmarks/scale.py, with measurements that are made up."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List

import pytest

Scale = Callable[..., int]


@pytest.fixture
def module() -> Any:
    path = Path(__file__).parents[4] / "benchmarks" / "scale.py"
    spec = importlib.util.spec_from_file_location("scale_benchmark", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def scale(module: Any, monkeypatch: pytest.MonkeyPatch) -> Scale:
    """Runs the benchmark with pipelines of these rates by the number of cores, each for the seconds of a fake clock."""

    def run(rates: Dict[int, float], interpreter_us: float = 20.0, volumes: float = 4000.0, *words: str) -> int:
        clock = SimpleNamespace(now=0.0)
        monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)

        def batches(rate: float) -> Iterator[int]:
            while True:
                clock.now += 1 / rate
                yield 1

        def case_of(workload: str, directory: Path) -> Any:
            fixed = {"imagenet": rates, "cosmoflow": dict.fromkeys(module.CORES, volumes)}[workload]
            pipelines = {"ours": lambda cores: batches(fixed[cores]), "sleep alone": lambda cores: batches(cores)}
            return SimpleNamespace(name=workload, pipelines=pipelines, slow_us=1.0, interpreter_us=interpreter_us)

        monkeypatch.setattr(module, "case_of", case_of)
        monkeypatch.setattr(module.bench_set, "make", lambda *arguments: None)
        for name in ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES"):  # which it sets; put back after the test
            monkeypatch.setenv(name, os.environ.get(name, "-1"))
        code: int = module.main(["--seconds", "100", "--rounds", "1", *words])
        return code

    return run


STRAIGHT = {cores: 2.0 * cores for cores in (1, 2, 4, 8, 16, 32)}


def test_all_goals_reached(scale: Scale, capsys: pytest.CaptureFixture[str]) -> None:
    assert scale(STRAIGHT) == 0
    out = capsys.readouterr().out
    assert "missed" not in out
    row = next(line for line in out.splitlines() if line.split()[0] == "16")
    assert row.split() == ["16", "32", "(", "16.0;", "1.00)", "16", "(", "16.0;", "1.00)"]


@pytest.mark.parametrize(
    ("more", "missed"),
    [
        ({"rates": {**STRAIGHT, 16: 26.0}}, ["imagenet: 16 cores are worth 13.0, the goal is 13.6"]),
        ({"rates": {**STRAIGHT, 32: 40.0}}, ["imagenet: 32 cores are worth 20.0, the goal is 22.4"]),
        ({"rates": STRAIGHT, "volumes": 1000.0}, ["cosmoflow: 1000 volumes/s with 32 cores, the goal is 1490"]),
    ],
    ids=["16 cores", "32 cores", "volumes"],
)
def test_a_goal_that_is_missed(more: Any, missed: List[str], scale: Scale, capsys: pytest.CaptureFixture[str]) -> None:
    assert scale(**more) == 1
    assert [line for line in capsys.readouterr().out.splitlines() if "missed" in line] == [f"missed: {missed[0]}"]


@pytest.mark.parametrize(("version", "code"), [((3, 8), 0), ((3, 11), 1)], ids=str)
def test_interpreter_time_has_a_goal_from_python_3_11_on(
    version: Any, code: int, scale: Scale, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert scale(STRAIGHT, interpreter_us=26.0) == code
