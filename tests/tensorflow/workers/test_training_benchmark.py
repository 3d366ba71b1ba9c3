"""What the benchmark of trainings measures, at toy size."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_the_measurements_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import training_cases
    from training import COMMON

    monkeypatch.setattr(training_cases, "OVERHEAD_ROUNDS", 1)
    monkeypatch.setattr(training_cases, "RECORDED", 10)
    small = ["data.side=8", "data.n_train=8", "model.n_conv_layers=1", "model.fc1_size=4", "model.fc2_size=4"]
    setup = training_cases.settled("cosmoflow", [*small, *COMMON], 2)
    assert training_cases.overhead(setup)["bare"] > 0
    assert training_cases.recording(setup)["recording"] > 0
    assert training_cases.plain_fit(setup, with_horovod=False)["samples_per_s"] > 0
