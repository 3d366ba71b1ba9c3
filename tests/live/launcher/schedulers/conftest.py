from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture()
def tmp_path(plain_path: Path) -> Path:
    """Schedulers refuse directories whose names have spaces."""
    return plain_path
