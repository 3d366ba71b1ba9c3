"""benchmarks/capacity.py, with rates that are made up."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, List

import pytest

PATH = Path(__file__).parents[4] / "benchmarks" / "capacity.py"


@pytest.mark.parametrize(
    ("rates", "missed"),
    [
        ([100.0, 110.0, 400.0], []),  # the median counts
        ([76.0, 76.0, 76.0], []),
        ([126.0, 130.0, 90.0], ["predicted / trained is 1.26, more than 25% off"]),
        ([60.0, 74.0, 90.0], ["predicted / trained is 0.74, more than 25% off"]),
    ],
    ids=["one is off", "slower", "too fast", "too slow"],
)
def test_a_prediction_that_is_off_fails_after_everything_is_measured(
    rates: List[float], missed: List[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    spec = importlib.util.spec_from_file_location("capacity_benchmark", PATH)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, allowed: None)
    cases = len(module.CASES)
    left = rates * cases
    module.output_of = lambda command: ""
    module.predicted = lambda words: left.pop(0)
    module.trained = lambda words, run: module.Rates(1.0, 100.0)
    assert module.main(["3"]) == (1 if missed else 0)
    lines = capsys.readouterr().out.splitlines()
    assert not left and sum("median of 3" in line for line in lines) == cases
    assert [line for line in lines if line.startswith("missed")] == [
        f"missed: {name}: {miss}" for name in module.CASES for miss in missed
    ]
