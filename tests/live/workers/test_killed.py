from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ipulaunch.configs.runs.checkpoints import found_in
from ipulaunch.workers.state.checkpoints import load

PROGRAM = Path(__file__).parent / "programs" / "killed.py"
LIGHT = Path(__file__).parents[1] / "faults" / "light"  # a TensorFlow in NumPy


@pytest.mark.parametrize(
    "path", [pytest.param([LIGHT], id="light"), pytest.param([], marks=pytest.mark.night, id="real")]
)
def test_a_run_killed_at_20_moments_ends_as_the_undisturbed_one(path: list, tmp_path: Path) -> None:
    """Among them: before the first update, and in every step of writing a checkpoint.

    By night with TensorFlow, whose part in it is to compile the model 20 times.
    """
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    words = [sys.executable, str(PROGRAM), str(tmp_path), "1"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=40_000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("killed at") == 20

    left = {path.name for path in (tmp_path / "killed" / "checkpoints").iterdir()}
    assert left == {path.name for path in found_in(tmp_path / "whole")}
    expected, found = (load(found_in(tmp_path / name)[-1]) for name in ("whole", "killed"))
    assert found.update == expected.update == 200
    assert len(found.optimizer) == len(expected.optimizer) > 1
    for mine, theirs in zip([*found.weights, *found.optimizer], [*expected.weights, *expected.optimizer]):
        assert np.array_equal(mine, theirs)
