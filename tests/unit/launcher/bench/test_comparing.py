from __future__ import annotations

import json
from pathlib import Path
from typing import Any, List, Optional

import pytest

from ipulaunch.configs.errors import UsageError
from ipulaunch.launcher.bench.comparing import OUTSIDE, UNKNOWN, WITHIN, Earlier, change, differences, read_earlier


@pytest.mark.parametrize(
    ("now", "earlier", "ratio", "verdict"),
    [
        ([10.0], [5.0], 2.0, UNKNOWN),
        ([10.0, 12.0], [5.0, 6.0], 2.0, OUTSIDE),
        ([5.0, 6.0], [10.0, 12.0], 0.5, OUTSIDE),
        ([10.0, 14.0], [13.0, 11.0], 1.0, WITHIN),
        ([10.0, 12.0], [12.0, 14.0], 11 / 13, WITHIN),  # they touch
        ([10.0], [9.0, 11.0], 1.0, WITHIN),
        ([12.0], [9.0, 11.0], 1.2, OUTSIDE),
        ([1.0, 1.0], [0.0, 0.0], None, OUTSIDE),
    ],
)
def test_change(now: List[float], earlier: List[float], ratio: Optional[float], verdict: str) -> None:
    found = change(now, earlier)
    assert found is not None
    assert (found.ratio, found.verdict) == (ratio if ratio is None else pytest.approx(ratio), verdict)


def test_there_is_no_change_without_both() -> None:
    assert change([], [1.0]) is None and change([1.0], []) is None


def _document(**more: Any) -> Any:
    rounds = [
        {"outcome": "ok", "values": {"loss": 2, "lost": None}},
        {"outcome": "failed", "values": {"loss": 9}},
        {"outcome": "ok", "values": {"loss": 4}},
    ]
    variants = [{"variant_name": "it", "command": "x", "rounds": rounds}]
    machine = {"host": "a", "cores": 2}
    return {"format": 1, "rounds": 3, "complete": True, "machine": machine, "variants": variants, **more}


def test_an_earlier_file_gives_the_values_of_its_good_rounds(tmp_path: Path) -> None:
    path = tmp_path / "benchmark_results.json"
    path.write_text(json.dumps(_document()))
    earlier = read_earlier(path)
    assert read_earlier(tmp_path) == earlier
    assert earlier.values == {"it": {"loss": [2.0, 4.0]}}
    assert differences(earlier, _document()) == []


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ({"rounds": 1}, "the earlier results have 3 rounds, these 1"),
        ({"machine": {"host": "b", "cores": 2}}, "from another machine: host a, now b"),
        ({"variants": [{"variant_name": "new", "command": "x"}]}, "do not have new"),
        ({"variants": [{"variant_name": "it", "command": "y"}]}, "the command of it was another: x"),
    ],
)
def test_what_makes_a_comparison_doubtful_is_said(now: Any, text: str) -> None:
    earlier = Earlier({"it": {}}, {"it": "x"}, 3, {"host": "a", "cores": 2}, True)
    (found,) = differences(earlier, _document(**now))
    assert text in found


def test_partial_results_are_said_to_be() -> None:
    earlier = Earlier({"it": {}}, {"it": "x"}, 3, {"host": "a", "cores": 2}, False)
    assert "not complete" in differences(earlier, _document())[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "does not hold results"),
        ('{"format": 1}', "does not hold results"),
        ('{"format": 2, "variants": []}', "does not hold results"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_earlier(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_earlier(tmp_path / "a.json")


@pytest.mark.parametrize(
    "variant", [3, {}, {"variant_name": 3}, {"variant_name": "it", "rounds": 3}, {"variant_name": "it", "rounds": [3]}]
)
def test_strange_variants_have_no_values(tmp_path: Path, variant: Any) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(_document(variants=[variant], machine=3, rounds="x")))
    assert not any(read_earlier(path).values.values())
