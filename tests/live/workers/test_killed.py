from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from ipulaunch.workers.checkpoints import found_in, load

PROGRAM = Path(__file__).parent / "programs" / "killed.py"


def test_a_run_killed_at_20_moments_ends_as_the_undisturbed_one(tmp_path: Path) -> None:
    """Among them: before the first update, and in every step of writing a checkpoint."""
    whole = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import killed, pathlib;"]
    whole[-1] += "killed.train(pathlib.Path(sys.argv[1]), None)"
    done = subprocess.run([*whole, str(tmp_path / "whole")], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    disturbed = [sys.executable, str(PROGRAM), str(tmp_path / "killed"), "1"]
    done = subprocess.run(disturbed, capture_output=True, text=True, timeout=6000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("killed at") == 20

    left = {path.name for path in (tmp_path / "killed" / "checkpoints").iterdir()}
    assert left == {path.name for path in found_in(tmp_path / "whole")}
    expected, found = (load(found_in(tmp_path / name)[-1]) for name in ("whole", "killed"))
    assert found.update == expected.update == 200
    for mine, theirs in zip([*found.weights, *found.optimizer], [*expected.weights, *expected.optimizer]):
        assert np.array_equal(mine, theirs)
