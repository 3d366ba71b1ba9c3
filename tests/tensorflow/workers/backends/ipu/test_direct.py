"""Several replicas in one process, without poprun: the same training as on CPUs and under PopDist."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest
from fixtures.plans import ipu_backend
from fixtures.trainings import TINY

SDKS = ("2.6", "3.0", "3.1", "3.4")


@pytest.mark.parametrize("sdk", SDKS)
def test_replicas_of_one_process_train_as_on_cpus(
    sdk: str, standin: Callable[..., Any], train_tiny: Any, on_cpus: Any, read_calls: Any, tmp_path: Path
) -> None:
    standin(sdk)
    found, expected = train_tiny(tmp_path / "run", 4, lambda *given: ipu_backend(TINY, *given)), on_cpus(4)
    assert len(found.state) == len(expected.state)
    for mine, theirs in zip(found.state, expected.state):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    for mine, theirs in zip(found.curve, expected.curve):  # losses and metrics of all replicas, on every SDK
        assert mine == {name: value if name == "checkpoint" else pytest.approx(value) for name, value in theirs.items()}
    calls = read_calls(tmp_path / "calls.jsonl", 0)
    assert ("IPUConfig.auto_select_ipus =", {"value": 4}) in calls
    names = [name for name, _ in calls]
    assert "IPUStrategy" in names
    assert not {"PopDistStrategy", "popdist.init", "popdist.tensorflow.set_ipu_config"} & set(names)
