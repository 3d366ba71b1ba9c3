from __future__ import annotations

from pathlib import Path
from typing import Dict, Optional

import pytest

from ipulaunch.topology.machines.hosts import tightest_limit


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        pytest.param("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "2", "memory.max": "3"}, 2, id="v2"),
        pytest.param("0::/a", {"a/memory.max": "max"}, None, id="v2 no limit"),
        pytest.param("0::/docker/abc", {"memory.max": "5"}, 5, id="v2 container"),
        pytest.param("4:memory:/a", {"memory/a/memory.limit_in_bytes": "7"}, 7, id="v1"),
        pytest.param("4:cpu:/a", {"memory/a/memory.limit_in_bytes": "7"}, None, id="v1 other controller"),
        pytest.param("nonsense\n0::/a", {"a/memory.max": "9"}, 9, id="line of another form"),
    ],
)
def test_tightest(cgroup: str, files: Dict[str, str], limit: Optional[int], tmp_path: Path) -> None:
    texts = {"proc/self/cgroup": cgroup, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    assert tightest_limit("memory", "memory.max", "memory.limit_in_bytes", tmp_path) == limit


def test_machine_without_cgroups(tmp_path: Path) -> None:
    assert tightest_limit("memory", "memory.max", "memory.limit_in_bytes", tmp_path) is None
