"""The options of the workloads: all that users of the Graphcore applications know, under the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records

pytestmark = pytest.mark.core

Run = Callable[..., Any]


def test_volumes_of_another_size_are_told_before_anything_starts(
    ipulaunch: Run, fake_mpirun: Path, tmp_path: Path
) -> None:
    volume = np.zeros((16, 16, 16, 4), np.int16)
    path = tmp_path / "volumes" / "train" / "a.tfrecord"
    path.parent.mkdir(parents=True)
    write_records(path, [encode_example({"x": volume.tobytes(), "y": np.zeros(4, np.float32)})])
    words = ["cosmoflow", "--pod", "4", "--engine", "openmpi", "--host-layout", "1x2", "--data-dir", "volumes"]
    words += ["--side", "32"]
    code, out, err = ipulaunch(*words)
    assert (code, out, Path("runs").exists()) == (5, "", False)
    assert f"{path}: volumes of 16 x 16 x 16, and the job is for 32 x 32 x 32\n" in err
    assert "use --side 16 --n-conv-layers 4\n" in err
    assert ipulaunch(*words, "--bad-records", "skip").code != 5  # one file may differ
    assert ipulaunch(*words, "--dry-run").code == 0
