from __future__ import annotations

import io
import re
from typing import Dict, List, Optional

import pytest

from ipulaunch.configs.benchmarks import Benchmark, Metric
from ipulaunch.launcher.bench.metrics import extract, lines_of

RATE = r"throughput: *(.*?) samples\/sec"


def _metric(name: str = "loss", pattern: str = r"loss: *(\S+)", skip: int = 0, reduction: str = "mean") -> Metric:
    return Metric(name, re.compile(pattern), skip, reduction)


def _extract(metric: Metric, *lines: str, processes: int = 1) -> Optional[float]:
    found = extract(Benchmark("it", "a.yml:1", "x", metrics=(metric,)), {}, lines, processes)
    assert bool(found.problems) == (found.values[metric.name] is None)
    return found.values[metric.name]


LOSSES = ("loss: 4", "loss: 1", "loss: 3")


@pytest.mark.parametrize(
    ("reduction", "skip", "value"),
    [
        ("mean", 0, 8 / 3),
        ("mean", 1, 3.5),  # without the lowest
        ("mean", 2, 4),
        ("mean", 3, None),
        ("final", 0, 3),
        ("final", 2, 3),  # the others leave out none, but need more matches
        ("final", 3, None),
        ("value", 1, 4),
        ("min", 0, 1),
        ("max", 1, 4),
    ],
)
def test_reductions(reduction: str, skip: int, value: Optional[float]) -> None:
    assert _extract(_metric(skip=skip, reduction=reduction), *LOSSES) == value


def test_the_mean_of_a_latency_leaves_out_the_highest() -> None:
    assert _extract(_metric("latency", skip=1), *LOSSES) == 2


@pytest.mark.parametrize(
    ("pattern", "lines", "value"),
    [
        (RATE, ["throughput: 10 samples/sec", "throughput: 20 samples/sec"], 15),
        (RATE, ["throughput: 10 samples/sec throughput: 20 samples/sec"], 15),  # two in a line
        (RATE, ["nothing"], None),
        (RATE, ["throughput: nan samples/sec", "throughput: 1 samples/sec"], None),
        (RATE, ["throughput: inf samples/sec"], None),
        (RATE, ["throughput: fast samples/sec"], None),
        (RATE, ["throughput: 1e3 samples/sec"], 1000),
        (r"\d+", ["3 and 5"], 4),  # no group: the whole match
        (r"(?:a|b)=(\d+)", ["a=1 b=3"], 2),
    ],
)
def test_matches(pattern: str, lines: List[str], value: Optional[float]) -> None:
    assert _extract(_metric(pattern=pattern), *lines) == value


def test_a_throughput_counts_once_for_each_process_of_mpirun() -> None:
    assert _extract(_metric("throughput"), "loss: 5", processes=4) == 20
    assert _extract(_metric("loss"), "loss: 5", processes=4) == 5


@pytest.mark.parametrize(
    ("log", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"1/2\r2/2\rdone\n", ["1/2", "2/2", "done"]),  # a progress line that is drawn again
        (b"end", ["end"]),
        (b"\xff\n", ["\\xff"]),
        (b"a\x0cb\xc2\x85c\n", ["a\x0cb\x85c"]),  # only these end a line
    ],
)
def test_lines_of_logs(log: bytes, lines: List[str]) -> None:
    assert list(lines_of([io.BytesIO(log), io.BytesIO(b"more")])) == [*lines, "more"]


def test_a_log_of_one_endless_line_is_read_in_pieces() -> None:
    assert [len(line) for line in lines_of([io.BytesIO(b"x" * (5 << 19))])] == [1 << 20, 1 << 20, 1 << 19]


def test_derived_metrics_take_metrics_parameters_and_each_other() -> None:
    derived = {"per_batch": "{loss} / {size}", "double": "{per_batch} * 2", "lost": "{accuracy} + 1"}
    metrics = (_metric(reduction="final"), _metric("accuracy", "accuracy: (.*)"))
    benchmark = Benchmark("it", "a.yml:1", "x", metrics=metrics, derived=derived)
    found = extract(benchmark, {"size": "4"}, LOSSES)
    expected: Dict[str, Optional[float]] = {"loss": 3, "accuracy": None, "per_batch": 0.75, "double": 1.5, "lost": None}
    assert found.values == expected
    assert found.problems == (
        "accuracy: nothing in the logs matches accuracy: (.*)",
        "lost: there is no value of accuracy",
    )
