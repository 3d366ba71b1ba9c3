from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any, Dict, Optional

from ipulaunch.configs.benchmarks import COMPILE_TIME, Benchmark, Metric
from ipulaunch.launcher.bench.comparing import Earlier
from ipulaunch.launcher.bench.results import (
    DURATION,
    FAILED,
    NOT_RUN,
    OK,
    WRONG,
    Round,
    VariantResult,
    as_csv,
    as_json,
    document,
)
from ipulaunch.launcher.bench.tables import result_rows
from ipulaunch.launcher.bench.variants import Variant


def _round(outcome: str = OK, code: int = 0, **values: Optional[float]) -> Round:
    found: Dict[str, Optional[float]] = {DURATION: 2.0, COMPILE_TIME: None, **values}
    return Round(outcome, code, found, "then", "now", Path("d/stdout"), Path("d/stderr"))


def _result(*rounds: Round, name: str = "it", **more: Any) -> VariantResult:
    metrics = (Metric("loss", re.compile("x"), 0, "final"),)
    output = (("the loss", "loss"), ("size", "n"))
    benchmark = Benchmark(name, "a.yml:1", "x", parameters=({"n": "8"},), metrics=metrics, output=output)
    result = VariantResult(Variant(benchmark, f"{name}_n_8", {"n": "8"}), "x", **more)
    result.rounds += rounds
    return result


def test_the_first_round_that_is_not_good_decides() -> None:
    assert _result().outcome == NOT_RUN and _result().exit_code is None
    assert _result(error="why").outcome == WRONG
    assert _result(_round(), _round()).outcome == OK
    failed = _result(_round(), _round(FAILED, 3), _round())
    assert (failed.outcome, failed.exit_code) == (FAILED, 3)


def test_results_as_json_have_the_spread_over_the_rounds() -> None:
    results = [_result(_round(loss=1.0), _round(loss=3.0)), _result(error="why", name="wrong")]
    found = json.loads(as_json(document(results, rounds=2, started="then", is_complete=True)))
    first, wrong = found["variants"]
    assert first["results"]["loss"] == {"reduction": "final", "mean": 2.0, "min": 1.0, "max": 3.0}
    assert first["results"][DURATION]["mean"] == 2.0 and first["results"][COMPILE_TIME]["mean"] is None
    assert (first["exitcode"], first["outcome"], first["params"]) == (0, "ok", {"n": "8"})
    assert first["rounds"][1]["values"]["loss"] == 3.0
    assert (wrong["outcome"], wrong["error"], wrong["rounds"]) == ("wrong specification", "why", [])
    assert found["complete"] is True and set(found["machine"]) == {"host", "processor", "cores"}


def test_results_as_csv_have_a_column_for_each_metric() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv([_result(_round(loss=1.5)), _result(name="other")]))))
    assert [row["Variant name"] for row in rows] == ["it_n_8", "other_n_8"]
    assert (rows[0]["loss"], rows[0][DURATION], rows[0]["throughput"], rows[0]["exitcode"]) == ("1.5", "2.0", "", "0")
    assert (rows[1]["loss"], rows[1]["outcome"]) == ("", "not run")


def test_a_table_of_one_round() -> None:
    results = [_result(_round(loss=1.5, **{COMPILE_TIME: 60.25})), _result(_round(FAILED, 3), name="bad")]
    assert result_rows(results, 1, None) == [
        ("variant", "result", "metric", "value"),
        ("it_n_8", "ok", "the loss", "1.5"),
        ("", "", "size", "8"),
        ("", "", "run time, s", "2.00"),
        ("", "", "compile time, s", "60.25"),
        ("bad_n_8", "failed", "run time, s", "2.00"),
    ]


def test_a_table_of_rounds_beside_earlier_ones() -> None:
    earlier = Earlier({"it_n_8": {"loss": [4.0], DURATION: [2.0]}}, {}, 1, {}, True)
    assert result_rows([_result(_round(loss=1.0), _round(loss=3.0)), _result(name="no")], 2, earlier) == [
        ("variant", "result", "metric", "mean", "spread", "earlier", "ratio", "difference"),
        ("it_n_8", "ok", "the loss", "2", "1 to 3", "4", "0.500", "outside the spread"),
        ("", "", "size", "8", "", "", "", ""),
        ("", "", "run time, s", "2.00", "2.00 to 2.00", "2.00", "1.000", "within the spread"),
        ("no_n_8", "not run", "", "", "", "", "", ""),
    ]
