from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.workers.models.loss_scaling import UPDATES_TO_DOUBLE, LossScaling


def automatic(scale: float = 128.0, good_updates: int = 0) -> LossScaling:
    scaling = LossScaling(scale, automatic=True)
    scaling.good_updates.assign(good_updates)
    return scaling


def resolve(scaling: LossScaling, *gradients: Any) -> List[Any]:
    """The gradients from a graph, as in training."""
    given = [tf.constant(gradient, tf.float32) for gradient in gradients]
    return [gradient.numpy().tolist() for gradient in tf.function(scaling.resolve)(given)]


def state(scaling: LossScaling) -> List[float]:
    return [variable.numpy() for variable in scaling.variables]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_scale_goes_in_and_comes_out(dtype: str) -> None:
    for scaling in (LossScaling(128.0), automatic()):
        loss = tf.constant(0.5, dtype)
        assert scaling.scaled(loss).dtype == loss.dtype
        assert float(scaling.scaled(loss)) == 64.0
        assert scaling.unscaled(tf.constant([64.0, -1.0], dtype)).numpy().tolist() == [0.5, -1 / 128]
        assert resolve(scaling, [64.0], [-32.0]) == [[0.5], [-0.25]]


def test_small_16_bit_gradients_survive() -> None:
    weight = tf.Variable(1.0, dtype=tf.float16)
    for scale, expected in ((1.0, 0.0), (1024.0, 1e-8)):
        scaling = LossScaling(scale)
        with tf.GradientTape() as tape:
            loss = scaling.scaled(weight * tf.constant(1e-4, tf.float16)) * tf.constant(1e-4, tf.float16)
        gradient = scaling.unscaled(tape.gradient(loss, weight))
        assert float(gradient) == pytest.approx(expected, rel=0.01)


def test_a_fixed_scale_has_no_state_and_hides_nothing() -> None:
    scaling = LossScaling(2.0)
    assert scaling.variables == []
    assert resolve(scaling, [np.inf], [1e6]) == [[np.inf], [5e5]]
    assert float(scaling.scale) == 2.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 40000.0, -40000.0])
def test_an_update_with_a_gradient_too_large_is_skipped_and_the_scale_halved(bad: float) -> None:
    scaling = automatic(good_updates=57)
    assert resolve(scaling, [1.0, 2.0], [3.0, bad]) == [[0.0, 0.0], [0.0, 0.0]]
    assert state(scaling) == [64.0, 0]


def test_good_updates_double_the_scale() -> None:
    scaling = automatic()
    update = tf.function(lambda: scaling.resolve([tf.constant([128.0]), tf.constant([[-4096.0]])]))
    for number in range(1, UPDATES_TO_DOUBLE):
        assert [gradient.numpy().tolist() for gradient in update()] == [[1.0], [[-32.0]]]
        assert state(scaling) == [128.0, number]
    update()
    assert state(scaling) == [256.0, 0]
    assert update()[0].numpy().tolist() == [0.5]


def test_the_update_that_doubles_is_unscaled_by_what_it_was_scaled_with() -> None:
    scaling = automatic(good_updates=UPDATES_TO_DOUBLE - 1)
    assert resolve(scaling, [128.0]) == [[1.0]]
    assert state(scaling) == [256.0, 0]


def test_a_gradient_near_the_limit_is_taken_and_starts_the_count_again() -> None:
    scaling = automatic(good_updates=UPDATES_TO_DOUBLE - 1)
    assert resolve(scaling, [1.0], [16384.0]) == [[1 / 128], [128.0]]
    assert state(scaling) == [128.0, 0]


@pytest.mark.parametrize(("scale", "gradient"), [(2.0**15, 1.0), (2.0**-14, np.nan)])
def test_the_scale_stays_a_16_bit_number(scale: float, gradient: float) -> None:
    scaling = automatic(scale, good_updates=UPDATES_TO_DOUBLE - 1)
    resolve(scaling, [gradient])
    assert state(scaling) == [scale, 0]


def test_instances_with_the_same_reduced_gradients_agree() -> None:
    generator = np.random.default_rng(0)
    first, second = automatic(), automatic()
    updates = [tf.function(scaling.resolve) for scaling in (first, second)]
    for _ in range(300):
        size = np.float32(10.0 ** generator.integers(0, 5))
        gradients = [tf.constant(size * generator.normal(size=3).astype(np.float32))]
        for found, other in zip(*(update(gradients) for update in updates)):
            np.testing.assert_array_equal(found, other)
        assert state(first) == state(second)


def test_the_variables_continue_a_training() -> None:
    scaling, other = automatic(256.0, good_updates=7), automatic()
    for variable, value in zip(other.variables, state(scaling)):
        variable.assign(value)
    assert state(other) == [256.0, 7]
