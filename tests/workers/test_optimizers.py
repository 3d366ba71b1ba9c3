from __future__ import annotations

import pytest

from ipulaunch.configs.sections import Optimizer
from ipulaunch.workers.optimizers import make_optimizer, scaled_rate


@pytest.mark.parametrize(("scaling", "rate"), [("none", 0.5), ("linear", 8.0), ("sqrt", 2.0)])
def test_the_rate_grows_with_the_replicas_as_asked(scaling: str, rate: float) -> None:
    assert scaled_rate(Optimizer("sgd", 0.5, scaling), replicas=16) == rate


@pytest.mark.parametrize(("name", "kind"), [("adadelta", "Adadelta"), ("adam", "Adam"), ("sgd", "SGD")])
def test_the_optimizer_is_the_one_of_the_settings(name: str, kind: str) -> None:
    optimizer = make_optimizer(Optimizer(name, 0.25), replicas=4)
    assert type(optimizer).__name__ == kind
    assert float(optimizer.get_config()["learning_rate"]) == 0.25


def test_momentum_reaches_sgd() -> None:
    assert make_optimizer(Optimizer("sgd", 0.1, momentum=0.9), 1).get_config()["momentum"] == 0.9
