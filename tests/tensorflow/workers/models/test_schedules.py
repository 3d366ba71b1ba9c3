from __future__ import annotations

import math
from typing import Any, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.settings.optimization import Schedule
from ipulaunch.workers.models.schedules import RateOverTime, learning_rate

UPDATES, EPOCHS, RATE = 13, 10, 0.8


def rates(schedule: Any, updates: int = UPDATES * EPOCHS) -> np.ndarray:
    """The rate of every update, all at once."""
    values: np.ndarray = schedule(tf.range(updates, dtype=tf.int64)).numpy()
    assert values.dtype == np.float32
    return values


def shape(settings: Schedule, position: float, decay: float) -> float:
    """The share of the rate, from the definitions."""
    gone = min(position / decay, 1)
    if settings.name == "cosine":
        return (1 + math.cos(math.pi * gone)) / 2
    if settings.name == "polynomial":
        end = settings.end_learning_rate_ratio
        return (1 - end) * (1 - gone) ** settings.power + end
    share = 1.0
    for boundary, factor in zip(settings.boundaries, settings.factors):
        if position >= boundary * UPDATES:
            share = factor
    return share


def expected(settings: Schedule) -> List[float]:
    """The rate of every update of a whole training, from the definitions."""
    found = []
    warmup = settings.warmup_epochs * UPDATES
    shifted = settings.warmup_mode == "shift"
    decay = (settings.epochs_to_total_decay or EPOCHS - settings.warmup_epochs * shifted) * UPDATES
    for update in range(EPOCHS * UPDATES):
        step = update // UPDATES * UPDATES if settings.staircase else update
        share = shape(settings, max(step - warmup, 0) if shifted else step, decay)
        share *= (step + 1) / (warmup + 1) if step < warmup else 1
        found.append(RATE * share)
    return found


SHAPES = [
    {"name": "const"},
    {"name": "cosine"},
    {"name": "cosine", "epochs_to_total_decay": 4.5},
    {"name": "polynomial"},
    {"name": "polynomial", "power": 2.0, "end_learning_rate_ratio": 0.01, "epochs_to_total_decay": 6.0},
    {"name": "stepped", "boundaries": (2.0, 4.5, 6.0), "factors": (0.5, 0.1, 0.01)},
]


@pytest.mark.parametrize("staircase", [False, True], ids=["smooth", "staircase"])
@pytest.mark.parametrize("warmup_epochs", [0.0, 2.0, 3.0])
@pytest.mark.parametrize("warmup_mode", ["shift", "mask"])
@pytest.mark.parametrize("about", SHAPES, ids=lambda about: "-".join(map(str, about.values())))
def test_a_whole_training_is_as_defined(about: Any, warmup_mode: str, warmup_epochs: float, staircase: bool) -> None:
    settings = Schedule(**about, warmup_mode=warmup_mode, warmup_epochs=warmup_epochs, staircase=staircase)
    schedule = RateOverTime(RATE, UPDATES, EPOCHS, **vars(settings))
    np.testing.assert_allclose(rates(schedule), expected(settings), rtol=2e-6, atol=1e-9)


# Worked out by hand: epochs of 4 updates, a rate of 2.
BY_HAND = {
    "shift, const": (
        {"name": "const", "warmup_mode": "shift", "warmup_epochs": 1.0},
        [0.4, 0.8, 1.2, 1.6, 2.0, 2.0, 2.0],
    ),
    "shift, const, staircase": (
        {"name": "const", "warmup_mode": "shift", "warmup_epochs": 2.0, "staircase": True},
        [0.2222222, 0.2222222, 0.2222222, 0.2222222, 1.1111111, 1.1111111, 1.1111111, 1.1111111, 2.0, 2.0],
    ),
    "shift, line": (
        {"name": "polynomial", "epochs_to_total_decay": 2.0, "warmup_mode": "shift", "warmup_epochs": 1.0},
        [0.4, 0.8, 1.2, 1.6, 2.0, 1.75, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0],
    ),
    "shift, cosine": (
        {"name": "cosine", "epochs_to_total_decay": 1.0, "warmup_mode": "shift", "warmup_epochs": 1.0},
        [0.4, 0.8, 1.2, 1.6, 2.0, 1.7071068, 1.0, 0.2928932, 0.0, 0.0],
    ),
    "shift, half an epoch, steps": (
        {"name": "stepped", "boundaries": (1.0, 2.0), "factors": (0.25, 0.125), "warmup_epochs": 0.5},
        [0.6666667, 1.3333333, 2.0, 2.0, 2.0, 2.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25],
    ),
    "mask, line": (
        {"name": "polynomial", "epochs_to_total_decay": 2.0, "warmup_mode": "mask", "warmup_epochs": 1.0},
        [0.4, 0.7, 0.9, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0],
    ),
    "mask, steps": (
        {
            "name": "stepped",
            "boundaries": (1.0, 2.0),
            "factors": (0.25, 0.125),
            "warmup_mode": "mask",
            "warmup_epochs": 0.5,
        },
        [0.6666667, 1.3333333, 2.0, 2.0, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25],
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_rates_are_those_worked_out_by_hand(case: str) -> None:
    about, expected = BY_HAND[case]
    found = rates(learning_rate(Schedule(**about), 2.0, 4, 5), len(expected))
    np.testing.assert_allclose(found, expected, atol=2e-7)


def test_the_published_staircase_trains_in_its_first_epoch() -> None:
    """The preset of the global batch 16k: 78 updates an epoch, a peak of 2, and 1/391, 79/391, ... of it before."""
    settings = Schedule("cosine", epochs_to_total_decay=95.0, warmup_epochs=5.0, staircase=True)
    found = rates(learning_rate(settings, 0.0001220703125 * 16384, 78, 100), 78 * 100)
    epochs = found.reshape(100, 78)
    assert (epochs == epochs[:, :1]).all()
    first = [0.00511509, 0.40409207, 0.80306905, 1.20204604, 1.60102302, 2.0, 1.99945329]
    np.testing.assert_allclose(epochs[:7, 0], first, rtol=1e-6)


@pytest.mark.parametrize("about", SHAPES[1:], ids=lambda about: "-".join(map(str, about.values())))
def test_a_graph_has_the_same_rates(about: Any) -> None:
    schedule = RateOverTime(RATE, UPDATES, EPOCHS, **vars(Schedule(**about, warmup_epochs=2.0, staircase=True)))
    np.testing.assert_allclose(rates(tf.function(schedule)), rates(schedule), rtol=2e-6, atol=1e-9)


def test_a_rate_that_never_changes_is_a_number() -> None:
    assert learning_rate(Schedule(), RATE, UPDATES, EPOCHS) == RATE
    assert isinstance(learning_rate(Schedule(warmup_epochs=1.0), RATE, UPDATES, EPOCHS), RateOverTime)


def test_the_published_rate_per_sample_gives_a_peak_of_1() -> None:
    updates, epochs = 1281167 // 8192, 100
    settings = Schedule("cosine", epochs_to_total_decay=95.0, warmup_epochs=5.0)
    found = rates(learning_rate(settings, 0.0001220703125 * 8192, updates, epochs), updates * epochs + 10)
    assert found[0] == pytest.approx(1 / 781)  # 5 x 156 updates of warm-up
    assert found.max() == found[5 * updates] == 1.0
    assert (np.diff(found[: 5 * updates + 1]) > 0).all()
    assert (np.diff(found[5 * updates :]) <= 0).all()
    assert found[updates * epochs - 1] > 0.0
    assert (found[updates * epochs :] == 0.0).all()


def test_the_published_polynomial_ends_at_its_share() -> None:
    updates = 1281167 // 1920
    settings = Schedule(
        "polynomial", epochs_to_total_decay=39.0, end_learning_rate_ratio=2.18e-05, power=2.0, warmup_epochs=5.0
    )
    found = rates(learning_rate(settings, 0.001991319444444 * 1920, updates, 44), updates * 44 + 1)
    assert found[5 * updates] == pytest.approx(3.8233333)
    assert found[-1] == pytest.approx(3.8233333 * 2.18e-05)


def test_late_steps_of_long_trainings_keep_their_epoch() -> None:
    schedule = RateOverTime(1.0, 9_999, 1000, **vars(Schedule("polynomial", staircase=True)))
    steps = tf.constant([9_999 * 999 - 1, 9_999 * 999, 9_999 * 1000 - 1], tf.int64)
    np.testing.assert_allclose(schedule(steps).numpy(), [0.002, 0.001, 0.001], atol=1e-7)


@pytest.mark.parametrize("mode", ["shift", "mask"])
def test_a_warm_up_as_long_as_the_training_stays_finite(mode: str) -> None:
    schedule = RateOverTime(RATE, UPDATES, EPOCHS, **vars(Schedule("cosine", warmup_mode=mode, warmup_epochs=10.0)))
    assert np.isfinite(rates(schedule)).all()


def test_a_schedule_can_be_written_down() -> None:
    settings = Schedule("stepped", boundaries=(1.0,), factors=(0.1,), warmup_mode="mask", warmup_epochs=2.0)
    schedule = RateOverTime(RATE, UPDATES, EPOCHS, **vars(settings))
    again = RateOverTime.from_config(schedule.get_config())
    np.testing.assert_array_equal(rates(again), rates(schedule))
