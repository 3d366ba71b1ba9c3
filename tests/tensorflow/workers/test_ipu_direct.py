"""Several replicas in one process, without poprun: the same training as on CPUs and under PopDist."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

from ipulaunch.configs.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings
from ipulaunch.configs.optimization import Optimizer
from ipulaunch.configs.sections import Training
from ipulaunch.topology.popdist import Place
from ipulaunch.workers.backends.ipu import IpuBackend

SDKS = ("2.6", "3.0", "3.1", "3.4")
TINY = CosmoflowSettings(  # the job of `train_tiny`
    data=CosmoflowData(side=8, n_train=17, n_valid=5),
    model=CosmoflowModel(conv_size=2, n_conv_layers=2, fc1_size=8, fc2_size=4, dropout=0.0),
    optimizer=Optimizer("adadelta", 0.5),
    training=Training(num_epochs=2, micro_batch_size=1, gradient_accumulation_count=2),
)


@pytest.mark.parametrize("sdk", SDKS)
def test_replicas_of_one_process_train_as_on_cpus(
    sdk: str, standin: Callable[..., Place], train_tiny: Any, on_cpus: Any, read_calls: Any, tmp_path: Path
) -> None:
    place = standin(sdk)._replace(local_replicas=4, replicas=4)
    found, expected = train_tiny(tmp_path / "run", place, lambda *where: IpuBackend(TINY, *where)), on_cpus(4)
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
