from __future__ import annotations

import pytest

from ipulaunch.configs.wording import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 replicas"), (1, "1 replica"), (2, "2 replicas")])
def test_one_is_not_many(number: int, text: str) -> None:
    assert counted(number, "replica") == text
