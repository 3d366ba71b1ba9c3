"""benchmarks/sets.py, with measurements that are made up."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, Dict

import pytest

ROOT = Path(__file__).parents[4]


@pytest.fixture()
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Dict[str, Any]:
    names = runpy.run_path(str(ROOT / "benchmarks" / "sets.py"))
    found: Dict[str, Any] = names["main"].__globals__
    comparison = names["Comparison"]("cosmoflow", Path("a"), Path("a"), 3.0)
    monkeypatch.setitem(found, "KINDS", {"kind": lambda directory: iter([comparison])})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    return found


@pytest.mark.parametrize(("ratio", "code"), [(3.01, 0), (3.0, 0), (2.99, 1)])
def test_a_ratio_below_its_target_is_a_miss(ratio: float, code: int, benchmark: Dict[str, Any], capsys: Any) -> None:
    asked = []
    benchmark["measured"] = lambda comparison, seconds: asked.append(seconds) or ratio
    assert benchmark["main"](["2.5"]) == code
    assert asked == [2.5]
    said = capsys.readouterr().out
    assert f"kind: ours / conventional: {ratio:.2f} (target 3.0)" in said
    assert ("missed: kind is 2.99, the target is 3.0" in said) == bool(code)


def test_the_rate_counts_samples(benchmark: Dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 2.0, 10.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.process_time", iter([5.0, 8.0]).__next__)
    assert benchmark["take"](iter([2, 4]), 9.0) == 0.5
