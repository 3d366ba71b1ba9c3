"""A worker on its own, with the stand-in as the SDK or without any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest


@pytest.mark.core
def test_a_worker_alone_takes_one_ipu(
    sdk_environment: Any,
    tiny_options: List[str],
    read_training: Any,
    read_calls: Any,
    one_and_many: Path,
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-m", "ipulaunch.workers", "cosmoflow", *tiny_options]
    done = subprocess.run(
        words, cwd=tmp_path, env=sdk_environment("3.4"), capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "instance-000" / "done.json").exists() and (run / "summary.json").exists()
    found, expected = read_training(run), read_training(one_and_many / "tiny-of-1-replica-1")
    assert len(found.state) == len(expected.state)
    for mine, theirs in zip(found.state, expected.state):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    calls = read_calls(tmp_path / "calls.jsonl", 0)
    names = [name for name, _ in calls]
    assert names.index("popdist.isPopdistEnvSet") < names.index("IPUConfig") < names.index("IPUStrategy")
    assert ("IPUConfig.auto_select_ipus =", {"value": 1}) in calls
    assert "PopDistStrategy" not in names and "popdist.init" not in names


def test_a_worker_without_the_sdk_says_what_to_do(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("POPDIST_")}
    words = [sys.executable, "-m", "ipulaunch.workers", "cosmoflow", "--rehearsal"]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 4
    assert "the Poplar SDK's TensorFlow is not here" in done.stderr
    assert "hint: enable the SDK: source <sdk>/enable.sh" in done.stderr
