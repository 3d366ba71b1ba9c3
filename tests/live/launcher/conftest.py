from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _clean_place(clean_place: None) -> None:
    """Every test of the launcher runs in a place of its own."""
