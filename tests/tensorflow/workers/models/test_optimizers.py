from __future__ import annotations

import math
from typing import Any, Dict, List, Optional

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.settings.optimization import Optimizer, Schedule
from ipulaunch.configs.settings.sections import Training
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.workers.models.optimizers import make_optimizer, optimizer_state, restore_optimizer

BATCH = Batch(micro_size=4, replicas=16, accumulation=2)
KERNEL, BIAS = np.array([[1.0, -2.0], [0.5, 4.0]]), np.array([0.25, -0.5])
# Three gradients for each of the two.
GRADIENTS = [
    (np.array([[0.5, 0.25], [-1.0, 0.0]]), np.array([1.0, -0.5])),
    (np.array([[-0.25, 1.5], [0.5, -0.125]]), np.array([0.0, 0.75])),
    (np.array([[2.0, -0.5], [0.25, 1.0]]), np.array([-0.25, 0.5])),
]
COSINE = Schedule("cosine")
UPDATES, EPOCHS = 2, 3
COSINE_SHARES = [(1 + math.cos(math.pi * update / (UPDATES * EPOCHS))) / 2 for update in range(3)]

OPTIMIZERS = [
    Optimizer("adadelta", 0.5),
    Optimizer("adam", 0.1),
    Optimizer("lars", 0.5),
    Optimizer("lars", 0.5, momentum=0.9, weight_decay=0.1, epsilon=0.01, eeta=0.02),
    Optimizer("rmsprop", 0.1, rho=0.8),
    Optimizer("rmsprop", 0.1, rho_exponent=-9.0, momentum=0.9, epsilon=0.001),
    Optimizer("sgd", 0.1),
    Optimizer("sgd", 0.1, momentum=0.9),
]


def name(settings: Optimizer) -> str:
    return settings.name + ("-momentum" if settings.momentum else "")


every_optimizer = pytest.mark.parametrize("settings", OPTIMIZERS, ids=name)


def make(settings: Optimizer, schedule: Schedule = Schedule()) -> Any:  # noqa: B008 - frozen
    job = WorkloadSettings(optimizer=settings, schedule=schedule, training=Training(num_epochs=EPOCHS))
    return make_optimizer(job, BATCH, UPDATES)


def variables(dtype: str = "float32") -> List[Any]:
    return [
        tf.Variable(KERNEL, dtype=dtype, name="conv/kernel"),
        tf.Variable(BIAS, dtype=dtype, name="conv/bias"),
    ]


def train(optimizer: Any, weights: List[Any], gradients: Any = GRADIENTS, graph: bool = False) -> List[np.ndarray]:
    """The weights after an update with each of the gradients; in a graph as in training, which takes longer to make."""

    def update(*given: Any) -> None:
        optimizer.apply_gradients(zip(given, weights))

    if graph:
        update = tf.function(update)
    for given in gradients:
        update(*[tf.constant(gradient, weight.dtype) for gradient, weight in zip(given, weights)])
    return [weight.numpy() for weight in weights]


def oracle(settings: Optimizer, shares: List[float]) -> List[np.ndarray]:
    """The same weights from the published formulas, in 64 bits."""
    result = []
    for index, (start, adapted) in enumerate([(KERNEL, True), (BIAS, False)]):
        weight, state = start.copy(), {}
        for update, share in enumerate(shares):
            rate = settings.learning_rate * share
            gradient = GRADIENTS[update][index] + settings.l2_regularization * weight
            step = STEPS[settings.name](settings, rate, gradient, weight, state, update + 1, adapted)
            decay = 0.0 if settings.name == "lars" else rate * settings.weight_decay
            weight = weight - decay * weight - step
        result.append(weight)
    return result


State = Dict[str, Any]


def sgd_step(s: Optimizer, rate: float, g: Any, w: Any, state: State, update: int, adapted: bool) -> Any:
    state["v"] = s.momentum * state.get("v", 0) + rate * g
    return state["v"]


def lars_step(s: Optimizer, rate: float, g: Any, w: Any, state: State, update: int, adapted: bool) -> Any:
    if adapted:
        size = np.linalg.norm(w)
        rate *= s.eeta * size / (np.linalg.norm(g) + s.weight_decay * size + (s.epsilon or 1e-7))
        g = g + s.weight_decay * w
    return sgd_step(s, rate, g, w, state, update, adapted)


def adam_step(s: Optimizer, rate: float, g: Any, w: Any, state: State, update: int, adapted: bool) -> Any:
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    state["v"] = 0.999 * state.get("v", 0) + 0.001 * g**2
    rate *= math.sqrt(1 - 0.999**update) / (1 - 0.9**update)
    return rate * state["m"] / (np.sqrt(state["v"]) + 1e-7)


def adadelta_step(s: Optimizer, rate: float, g: Any, w: Any, state: State, update: int, adapted: bool) -> Any:
    state["g"] = 0.95 * state.get("g", 0) + 0.05 * g**2
    step = np.sqrt(state.get("s", 0) + 1e-7) / np.sqrt(state["g"] + 1e-7) * g
    state["s"] = 0.95 * state.get("s", 0) + 0.05 * step**2
    return rate * step


def rmsprop_step(s: Optimizer, rate: float, g: Any, w: Any, state: State, update: int, adapted: bool) -> Any:
    rho = s.rho if s.rho_exponent is None else 1 - 2**s.rho_exponent * 128
    epsilon = 1e-7 if s.epsilon is None else s.epsilon
    state["r"] = rho * state.get("r", 0) + (1 - rho) * g**2
    if not s.momentum:
        return rate * g / (np.sqrt(state["r"]) + epsilon)
    # With momentum, Keras has its epsilon under the root.
    state["v"] = s.momentum * state.get("v", 0) + rate * g / np.sqrt(state["r"] + epsilon)
    return state["v"]


STEPS = {"adadelta": adadelta_step, "adam": adam_step, "lars": lars_step, "rmsprop": rmsprop_step, "sgd": sgd_step}


def with_terms(settings: Optimizer, **terms: float) -> Optimizer:
    return Optimizer(**{**vars(settings), **terms})


@pytest.mark.parametrize(
    "terms",
    [{}, {"l2_regularization": 0.3, "weight_decay": 0.2}],
    ids=["plain", "l2 and decay"],
)
@every_optimizer
def test_three_updates_are_as_published(settings: Optimizer, terms: Dict[str, float]) -> None:
    settings = with_terms(settings, **terms)
    for found, expected in zip(train(make(settings), variables()), oracle(settings, [1.0] * 3)):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


@every_optimizer
def test_rate_and_weight_decay_follow_the_schedule(settings: Optimizer) -> None:
    settings = with_terms(settings, weight_decay=0.3)
    for found, expected in zip(train(make(settings, COSINE), variables()), oracle(settings, COSINE_SHARES)):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


@every_optimizer
def test_weights_of_16_bits_learn_the_same(settings: Optimizer) -> None:
    settings = with_terms(settings, weight_decay=0.3, l2_regularization=0.1)
    for found, expected in zip(train(make(settings, COSINE), variables("float16")), oracle(settings, COSINE_SHARES)):
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.005)


DIVIDING = [settings for settings in OPTIMIZERS if settings.name in ("adadelta", "adam", "rmsprop")]


@pytest.mark.core
@pytest.mark.parametrize("settings", DIVIDING, ids=name)
@pytest.mark.parametrize("size", [1e-3, 1e-5])
def test_small_gradients_do_not_throw_16_bit_weights_out(settings: Optimizer, size: float) -> None:
    """Their squares are 0 in 16 bits, and so would be what they are divided by."""
    settings = with_terms(settings, learning_rate=0.01)
    gradients = [[size * part for part in given] for given in GRADIENTS] * 5
    expected = train(make(settings), variables(), gradients)
    for found, other in zip(train(make(settings), variables("float16"), gradients), expected):
        np.testing.assert_allclose(found, other, rtol=0.01, atol=0.005)


@pytest.mark.parametrize("settings", DIVIDING, ids=name)
def test_state_that_was_kept_in_16_bits_is_restored(settings: Optimizer) -> None:
    weights, optimizer = variables("float16"), make(settings)
    train(optimizer, weights, GRADIENTS[:2])
    updates, *states = optimizer_state(optimizer)
    assert {state.dtype for state in states} == {np.dtype(np.float32)}
    restore_optimizer(optimizer, weights, [updates, *(state.astype(np.float16) for state in states)])
    for found, other in zip(optimizer_state(optimizer)[1:], states):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, other, rtol=1e-3, atol=1e-6)


@pytest.mark.core
@every_optimizer
def test_a_graph_updates_as_step_by_step(settings: Optimizer) -> None:
    settings = with_terms(settings, weight_decay=0.3, l2_regularization=0.1)
    expected = train(make(settings, COSINE), variables())
    for found, other in zip(train(make(settings, COSINE), variables(), graph=True), expected):
        np.testing.assert_allclose(found, other, rtol=1e-5, atol=1e-6)


def test_16_bit_weights_do_not_stop_the_schedule() -> None:
    # Keras alone would count updates in float16: 2049 is 2048 there, and 70,000 is no number.
    job = WorkloadSettings(
        optimizer=Optimizer("sgd", 1.0), schedule=Schedule("polynomial"), training=Training(num_epochs=1)
    )
    optimizer = make_optimizer(job, BATCH, 100_000)
    weights = [tf.Variable([0.0], dtype="float16")]
    restore_optimizer(optimizer, weights, [np.array(75_000)])
    (found,) = train(optimizer, weights, [[np.array([-1.0])]], graph=True)
    assert found == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("momentum", "equal"), [pytest.param(0.0, True, id="plain"), pytest.param(0.9, False, id="momentum")]
)
def test_l2_and_weight_decay_are_the_same_only_without_state(momentum: float, equal: bool) -> None:
    l2 = train(make(Optimizer("sgd", 0.1, momentum=momentum, l2_regularization=0.5)), variables())
    decay = train(make(Optimizer("sgd", 0.1, momentum=momentum, weight_decay=0.5)), variables())
    for first, second in zip(l2, decay):
        assert np.allclose(first, second, rtol=1e-5) is equal


@pytest.mark.parametrize("layer", ["bn/gamma", "bn/beta", "stage_1/conv/bias"])
def test_lars_leaves_normalisations_and_biases_alone(layer: str) -> None:
    weights = [tf.Variable([3.0, 4.0], name=layer)]
    (found,) = train(make(Optimizer("lars", 0.5, weight_decay=0.1)), weights, [[np.array([1.0, -1.0])]])
    np.testing.assert_allclose(found, [2.5, 4.5])


def test_lars_adapts_a_layer_that_is_only_called_so() -> None:
    weights = [tf.Variable([3.0, 4.0], name="beta/kernel")]
    (found,) = train(make(Optimizer("lars", 0.5, eeta=0.1)), weights, [[np.array([0.6, 0.8])]])
    np.testing.assert_allclose(found, [3.0 - 0.5 * 0.1 * 5 * 0.6, 4.0 - 0.5 * 0.1 * 5 * 0.8], rtol=1e-5)


@pytest.mark.parametrize("epsilon", [None, 0.0], ids=["none", "0"])
def test_lars_takes_no_epsilon_and_0_for_the_one_of_keras(epsilon: Optional[float]) -> None:
    assert make(Optimizer("lars", 0.5, epsilon=epsilon)).epsilon == tf.keras.backend.epsilon() > 0


@pytest.mark.parametrize(("weight", "gradient", "after"), [(0.0, 1.0, -0.5), (2.0, 0.0, 2.0), (0.0, 0.0, 0.0)])
def test_lars_with_nothing_to_compare_is_gradient_descent(weight: float, gradient: float, after: float) -> None:
    weights = [tf.Variable([weight], name="fc/kernel")]
    (found,) = train(make(Optimizer("lars", 0.5, epsilon=0.0)), weights, [[np.array([gradient])]])
    assert found == pytest.approx(after)


@pytest.mark.parametrize(("scaling", "rate"), [("none", 0.5), ("linear", 8.0), ("sqrt", 2.0), ("batch", 64.0)])
def test_the_rate_grows_as_asked(scaling: str, rate: float) -> None:
    assert make(Optimizer("sgd", 0.5, scaling)).get_config()["learning_rate"] == rate


def test_the_published_rate_is_per_sample() -> None:
    job = WorkloadSettings(optimizer=Optimizer("sgd", 0.0001220703125, "batch"))
    optimizer = make_optimizer(job, Batch(16, 4, 128), 156)
    assert optimizer.get_config()["learning_rate"] == 1.0


def test_an_epsilon_of_0_is_not_the_default() -> None:
    settings = Optimizer("adam", 0.1, epsilon=0.0)
    weights = [tf.Variable([1.0])]
    (found,) = train(make(settings), weights, [[np.array([1e-12])]])
    assert found == pytest.approx(0.9)


@pytest.mark.parametrize(("exponent", "rho"), [(-6.5, "-0.414214"), (-1.0, "-63")])
def test_rho_outside_its_range_is_refused(exponent: float, rho: str) -> None:
    with pytest.raises(SettingsError) as caught:
        make(Optimizer("rmsprop", 0.1, rho_exponent=exponent))
    assert caught.value.message == f"rho = 1 - 2^{exponent:g} x 128 = {rho} is not from 0 to 1"
    assert caught.value.hint == "for a global batch of 128 use an optimizer.rho_exponent of at most -7"
    assert make(Optimizer("rmsprop", 0.1, rho_exponent=-7.0)).get_config()["rho"] == 0.0


STATE = {
    "adadelta": 5, "adam": 5, "lars": 1, "lars-momentum": 3, "rmsprop": 3, "rmsprop-momentum": 5, "sgd": 1,
    "sgd-momentum": 3,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@every_optimizer
def test_a_restored_optimizer_goes_on_as_if_never_stopped(settings: Optimizer, dtype: str) -> None:
    settings = with_terms(settings, weight_decay=0.3)
    whole = train(make(settings, COSINE), variables(dtype))

    first, weights = make(settings, COSINE), variables(dtype)
    train(first, weights, GRADIENTS[:2])
    state = optimizer_state(first)
    assert len(state) == STATE[name(settings)]
    assert int(state[0]) == 2

    second, copies = make(settings, COSINE), variables(dtype)
    for weight, copy in zip(weights, copies):
        copy.assign(weight)
    restore_optimizer(second, copies, state)
    assert int(second.iterations) == 2
    for found, saved in zip(optimizer_state(second), state):
        assert found.dtype == saved.dtype
        np.testing.assert_array_equal(found, saved)
    for found, expected in zip(train(second, copies, GRADIENTS[2:]), whole):
        np.testing.assert_array_equal(found, expected)


@every_optimizer
def test_state_is_in_the_order_in_which_it_is_restored(settings: Optimizer) -> None:
    trained, fresh = make(settings), make(settings)
    train(trained, variables())
    weights = variables()
    restore_optimizer(fresh, weights, optimizer_state(trained))
    assert [weight.name for weight in fresh.weights] == [weight.name for weight in trained.weights]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([np.array(3)], "1 arrays of 1 numbers, and Sgd takes 3 of 7"),
        ([np.array(3), np.zeros(3), np.zeros(2)], "3 arrays of 6 numbers, and Sgd takes 3 of 7"),
    ],
)
def test_the_state_of_another_optimizer_is_refused(arrays: List[np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        restore_optimizer(make(Optimizer("sgd", 0.1, momentum=0.9)), variables(), arrays)


def test_a_model_of_keras_trains_with_every_optimizer() -> None:
    inputs, targets = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
    for settings in OPTIMIZERS:
        model = tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
        model.compile(optimizer=make(with_terms(settings, l2_regularization=0.1), COSINE), loss="mse", run_eagerly=True)
        model.fit(inputs, targets, epochs=2, batch_size=2, verbose=0)
        assert int(model.optimizer.iterations) == 4
        assert all(np.isfinite(weight).all() for weight in model.get_weights())
