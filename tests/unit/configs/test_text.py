from __future__ import annotations

from typing import List

import pytest

from ipulaunch.configs.text import counted, either, some, utc


@pytest.mark.parametrize(("number", "text"), [(0, "0 replicas"), (1, "1 replica"), (2, "2 replicas")])
def test_one_is_not_many(number: int, text: str) -> None:
    assert counted(number, "replica") == text
    assert counted(2, "discrepancy", "discrepancies") == "2 discrepancies"


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (2, "a; b"), (3, "a; b and 1 more"), (4, "a; b and 2 more")]
)
def test_of_many_names_a_few_are_said(count: int, text: str) -> None:
    assert some(list("abcd")[:count], 2, "; ") == text
    assert some(list("abcd")) == "a, b, c and 1 more"


def test_times_are_written_in_one_way() -> None:
    assert utc(1_790_000_000) == "2026-09-21T14:13:20Z"
    assert utc(0) == "1970-01-01T00:00:00Z" < utc()


@pytest.mark.parametrize(("choices", "text"), [([4], "4"), ([2, 4], "2 or 4"), ([1, 2, 4], "1, 2 or 4")])
def test_choices_are_listed(choices: List[int], text: str) -> None:
    assert either(choices) == text
