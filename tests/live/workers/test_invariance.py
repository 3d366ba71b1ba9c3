"""One process against many: the oracle of everything else. All of it comes from one launch of four processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

pytestmark = pytest.mark.core

# x = i / 15 for i = 0..15, targets 0, weight 1, rate 1: the mean of x^2 is 31/90, so the weight becomes 14/45.
# With i = 0..12, padded to 16: the sum of x^2 is 26/9, and divided by 16 it leaves 23/36.
STEPS = {"in one micro-batch": 14 / 45, "in four micro-batches": 14 / 45, "padded": 23 / 36}
TRAININGS = ("dropout", "batch-statistics")


@pytest.mark.parametrize("how", STEPS)
@pytest.mark.parametrize("instances", [1, 2, 4])
def test_one_weight_takes_the_same_step_everywhere(instances: int, how: str, one_and_many: Path) -> None:
    for instance in range(instances):
        found = json.loads((one_and_many / f"step-{instances}-{instance}.json").read_text())
        assert found[how] == pytest.approx(STEPS[how], abs=1e-6)


def state(directory: Path) -> Dict[str, Any]:
    with np.load(directory / "checkpoints" / "update-00000004" / "state.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def curve(directory: Path) -> List[Dict[str, Any]]:
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in row if name not in ("train_s", "samples_per_s")} for row in rows]


@pytest.mark.parametrize(("case", "updates"), [("dropout", [2, 4, 2, 4]), ("batch-statistics", [2, 4])])
def test_one_instance_trains_and_validates_as_it_was_asked(case: str, updates: List[int], one_and_many: Path) -> None:
    """Without which the comparisons would be of nothing."""
    rows = curve(one_and_many / f"{case}-1")
    assert [row["update"] for row in rows] == updates
    assert rows[0]["loss"] != rows[1]["loss"]


@pytest.mark.parametrize("instances", [2, 4])
@pytest.mark.parametrize("case", TRAININGS)
def test_weights_and_optimizer_have_the_same_bits(case: str, instances: int, one_and_many: Path) -> None:
    expected, found = (state(one_and_many / f"{case}-{count}") for count in (1, instances))
    assert expected.keys() == found.keys()
    assert [name for name, value in expected.items() if not np.array_equal(value, found[name])] == []


@pytest.mark.parametrize("instances", [2, 4])
@pytest.mark.parametrize("case", TRAININGS)
def test_losses_and_metrics_have_the_same_bits(case: str, instances: int, one_and_many: Path) -> None:
    assert curve(one_and_many / f"{case}-{instances}") == curve(one_and_many / f"{case}-1")


@pytest.mark.parametrize("case", TRAININGS)
@pytest.mark.parametrize("instances", [2, 4])
def test_every_instance_has_the_summary_of_the_run(case: str, instances: int, one_and_many: Path) -> None:
    run = one_and_many / f"{case}-{instances}"
    summary = json.loads((run / "summary.json").read_text())
    for instance in range(instances):
        done = json.loads((run / f"instance-{instance:03}" / "done.json").read_text())
        assert done.pop("time_ns") and done == summary


@pytest.mark.parametrize("instances", [2, 4])
def test_validation_by_many_is_that_of_one(instances: int, one_and_many: Path) -> None:
    (found,), (expected,) = (curve(one_and_many / f"validation-{count}") for count in (instances, 1))
    assert found == expected and "val_loss" in found


def test_what_fills_up_the_last_step_of_a_validation_does_not_count(one_and_many: Path) -> None:
    (found,), (expected,) = (curve(one_and_many / name) for name in ("validation-4", "unpadded-validation-1"))
    assert found["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-5)
    assert found["val_mae"] == pytest.approx(expected["val_mae"], rel=1e-5)


def test_a_replica_estimator_of_two_instances_has_the_weights_of_one(estimators: Path) -> None:
    with np.load(estimators / "model-1.npz") as expected, np.load(estimators / "model-2.npz") as found:
        assert sorted(expected.files) == sorted(found.files)
        for name in expected.files:
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5, err_msg=name)


def test_a_replica_estimator_of_two_instances_has_the_metrics_of_one(estimators: Path) -> None:
    one, two = (
        json.loads((estimators / f"estimator-for-2-{n}" / "summary.json").read_text())["metrics"] for n in (1, 2)
    )
    assert two == pytest.approx(one, abs=1e-5) and "val_loss" in two
