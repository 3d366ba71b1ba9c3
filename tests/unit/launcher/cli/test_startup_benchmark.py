"""benchmarks/startup.py, with times that are made up."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, List

import pytest

ENGINES = ("poprun", "openmpi")
PATH = Path(__file__).parents[4] / "benchmarks" / "startup.py"


@pytest.mark.parametrize(
    ("dry_run_s", "large_s", "missed"),
    [
        (0.18, 1.1, []),
        (0.3, 1.1, ["dry run / imports is 3.00, the goal is at most 1.8"]),
        (0.15, 1.3, [f"65,536 IPUs with {name} take 1.15 s more, the goal is below 1 s" for name in ENGINES]),
    ],
    ids=["reached", "slow start", "slow for many IPUs"],
)
def test_a_goal_that_is_missed_fails_after_everything_is_measured(
    dry_run_s: float, large_s: float, missed: List[str], capsys: Any
) -> None:
    spec = importlib.util.spec_from_file_location("startup_benchmark", PATH)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    times = {"-c": 0.1, "cosmoflow": dry_run_s, "run": large_s}
    module.seconds = lambda command: times[command[1]]
    assert module.main() == (1 if missed else 0)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("missed")] == [f"missed: {miss}" for miss in missed]
    assert "65,536 IPUs, openmpi" in "".join(lines)
