"""Automatic loss scaling on IPUs: the SDK's optimizer around ours, its state, and what it leaves out."""

from __future__ import annotations

import copy
from typing import Any, Callable, List

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import ipu_backend, plan_of

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.topology.planning.refusals import refuse_automatic_scaling
from ipulaunch.workers.backends.interface import Feed
from ipulaunch.workers.backends.ipu.backend import IpuBackend
from ipulaunch.workers.backends.ipu.sdk import load_als
from ipulaunch.workers.models.build import build_model
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import make_optimizer
from ipulaunch.workers.models.precision import precision
from ipulaunch.workers.models.variables import read_variable, read_variables
from ipulaunch.workers.state.checkpoints import load
from ipulaunch.workers.state.training_state import TrainingState

pytestmark = pytest.mark.usefixtures("smooth")
Install = Callable[..., Any]
PLAIN = ("optimizer.momentum=0", "optimizer.l2_regularization=0", "schedule.name=const", "training.remainder=repeat")
SMALL = ("data.synthetic_data=cpu", "data.side=8", "data.classes=10", "training.precision=16.16", *PLAIN)
AUTOMATIC, ROUNDED = "optimizer.auto_loss_scaling=true", "device.stochastic_rounding='on'"
ALONE, ACCUMULATED = Batch(2, 2, 1), Batch(2, 2, 2)
TWO_STAGES = "pipeline.splits=[conv3_block1_post_addition_relu]"


class Pictures(ArraySource):
    """Made-up pixels and labels."""

    samples = 64
    inputs, targets = (np.uint8, (8, 8, 3)), (np.int32, ())

    def load(self, ids: np.ndarray) -> Any:
        pixels = [np.random.default_rng(number).integers(0, 256, (8, 8, 3)) for number in ids]
        return np.array(pixels, np.uint8), ids.astype(np.int32) % 10


def settings_of(*texts: str) -> Any:
    overrides = [assignment(text, "--set") for text in (*SMALL, *texts)]
    return resolve("cifar10", rehearsal=True, overrides=overrides).settings


class Trained:
    """A residual block with batch norm on the IPUs of one instance."""

    def __init__(self, settings: Any, network: Any, backend: IpuBackend) -> None:
        self.batch, self.backend = backend.batch, copy.copy(backend)  # a process configures one device
        self.backend.settings = settings
        with self.backend.scope(), precision(settings.training.precision):
            self.model = build_model(network(settings), self.backend.dropout)
            self.optimizer = make_optimizer(settings, self.batch, 1)
            events = HostEvents(1, 1, 1, 0, 0, 1)
            self.training = self.backend.prepare(self.model, self.optimizer, measures_of(settings), events)
        self.state = TrainingState(self.model, self.optimizer, self.training.more)

    def fit(self, updates: range) -> List[np.ndarray]:
        stream = training_stream(
            Pictures(), self.batch, self.backend.replicas, shuffle=Shuffle(0), updates=updates, by_replica=False,
            threads=1, remainder="repeat",
        )  # fmt: skip
        steps = self.batch.accumulation
        self.training.fit(Feed(stream), epochs=len(updates), steps_per_epoch=steps, callbacks=[])
        return read_variables(self.model.weights)


@pytest.fixture()
def make(standin: Install, one_residual_block: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trained]:
    backends: List[IpuBackend] = []

    def build(*texts: str, batch: Batch = ALONE, sdk: str = "3.4", ipus: int = 1, is_placed: bool = True) -> Trained:
        monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", str(ipus))
        settings = settings_of(*texts)
        if not backends:
            standin(sdk, replicas=batch.replicas if is_placed else 0)
            backends.append(ipu_backend(settings, plan_of(batch, ipus_per_replica=ipus)))
        return Trained(settings, one_residual_block, backends[0])

    return build


def weights_of(made: Trained) -> List[np.ndarray]:
    return read_variables(made.model.weights)


# The batch, the pipeline and its IPUs.
PATHS = {
    "alone": (ALONE, (), 1),
    "accumulated": (ACCUMULATED, (), 1),
    "pipeline": (Batch(2, 2, 4), (TWO_STAGES,), 2),
}
RUNS = [
    pytest.param(*PATHS[path], sdk, id=f"{path} {sdk}", marks=[pytest.mark.night][(path, sdk) == ("alone", "3.4") :])
    for path in PATHS
    for sdk in ("3.0", "3.1", "3.4")
]


IN_ONE_PROCESS = pytest.param(*PATHS["alone"], "3.4", False, id="alone in one process")


@pytest.mark.parametrize(
    ("batch", "more", "ipus", "sdk", "is_placed"),
    [*(pytest.param(*run.values, True, id=run.id, marks=run.marks) for run in RUNS), IN_ONE_PROCESS],
)
def test_it_trains_as_without_a_scale_and_moves_it(
    batch: Batch, more: Any, ipus: int, sdk: str, is_placed: bool, make: Callable[..., Trained]
) -> None:
    """Two replicas, whose gradients the SDK's optimizer does not sum by itself, and batch statistics among them.

    At night all paths on all SDKs: a graph takes seconds to make.
    """
    plain = make(*more, batch=batch, sdk=sdk, ipus=ipus, is_placed=is_placed)
    scaled = make(AUTOMATIC, *more, batch=batch, sdk=sdk, ipus=ipus, is_placed=is_placed)
    for weight, value in zip(scaled.model.weights, weights_of(plain)):
        weight.assign(value)
    expected, found = plain.fit(range(10)), scaled.fit(range(10))
    for mine, theirs, weight in zip(found, expected, plain.model.weights):
        np.testing.assert_allclose(mine, theirs, atol=0.005, err_msg=weight.name)
    # From SDK 3.1 on, every ninth count moves the scale; an undivided model that accumulates counts micro-batches.
    moves = 10 * (2 if batch == ACCUMULATED else 1) // 9 if sdk >= "3.1" else 1
    assert read_variable(scaled.training.compiled_optimizer.loss_scaling_factor) == 2**moves
    assert read_variable(scaled.optimizer.iterations) == 10
    history = scaled.training.model.history.history["loss"]
    assert history == pytest.approx(plain.training.model.history.history["loss"], rel=0.05)


def test_a_resumed_training_goes_on_with_the_same_scale(make: Callable[..., Trained], tmp_path: Any) -> None:
    whole, first = make(AUTOMATIC), make(AUTOMATIC)
    for weight, value in zip(first.model.weights, weights_of(whole)):
        weight.assign(value)
    expected = whole.fit(range(12))
    first.fit(range(11))
    path = first.state.save(tmp_path, {"update": 11})
    second = make(AUTOMATIC)
    second.state.restore(load(path))
    assert [value.tolist() for value in read_variables(second.state.more)] == [
        value.tolist() for value in read_variables(first.state.more)
    ]
    assert len(second.state.more) == 4
    for mine, theirs in zip(second.fit(range(11, 12)), expected):
        np.testing.assert_array_equal(mine, theirs)
    assert read_variables(second.state.more)[0] == read_variables(whole.state.more)[0]


def test_sdk_2_6_has_no_optimizer_for_it(make: Callable[..., Trained]) -> None:
    with pytest.raises(SettingsError, match="automatic loss scaling on IPUs needs SDK 3") as caught:
        make(AUTOMATIC, sdk="2.6")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("training.precision=16.32", "with --precision 16.32 gradients have 32"),
        ("training.precision=32.32", "with --precision 32.32 gradients have 32"),
        ("optimizer.loss_scaling=100", "begins with a power of two from 1 to 8192, and --loss-scaling is 100"),
        ("optimizer.loss_scaling=16384", "--loss-scaling is 16384"),
    ],
)
def test_what_the_sdk_could_not_follow_is_refused(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as caught:
        refuse_automatic_scaling(settings_of(AUTOMATIC, text), ALONE)
    assert caught.value.hint
    refuse_automatic_scaling(settings_of(text), ALONE)
    refuse_automatic_scaling(settings_of(AUTOMATIC, "optimizer.loss_scaling=8192"), ALONE)


def test_replicas_that_would_round_their_own_sums_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"accumulation 2, 4 replicas and --stochastic-rounding on: .* drift apart"):
        refuse_automatic_scaling(settings_of(AUTOMATIC, ROUNDED), Batch(2, 4, 2))
    for rounding in ("ri", "off"):
        refuse_automatic_scaling(settings_of(AUTOMATIC, f"device.stochastic_rounding='{rounding}'"), Batch(2, 4, 2))
    for batch in (Batch(2, 1, 2), Batch(2, 4, 1)):
        refuse_automatic_scaling(settings_of(AUTOMATIC, ROUNDED), batch)
    refuse_automatic_scaling(settings_of(AUTOMATIC, ROUNDED, TWO_STAGES), Batch(2, 4, 4))


def test_replicas_drift_where_each_rounds_what_it_accumulates(make: Callable[..., Trained]) -> None:
    make(ROUNDED, batch=ACCUMULATED).fit(range(1))
    with pytest.raises(RuntimeError, match="each replica rounds the sum that it accumulates"):
        make(AUTOMATIC, ROUNDED, batch=ACCUMULATED).fit(range(1))


@pytest.mark.parametrize(
    ("first", "error"), [(1, None), (8192, None), (3, ValueError), (16384, ValueError), (2.0, TypeError)]
)
def test_the_stand_in_takes_the_factors_that_the_sdk_takes(first: Any, error: Any, standin: Install) -> None:
    standin("3.4")
    optimizer = make_optimizer(settings_of(), Batch(1, 1, 1), 1)
    if error is None:
        assert load_als()(optimizer, initial_loss_scaling_factor=first).loss_scaling_factor == first
    else:
        with pytest.raises(error):
            load_als()(optimizer, initial_loss_scaling_factor=first)


@pytest.mark.parametrize(("sdk", "moves"), [("3.0", [8, 16, 24]), ("3.1", [9, 18, 27]), ("3.4", [9, 18, 27])])
def test_the_stand_in_moves_the_factor_as_often_as_the_sdk(sdk: str, moves: List[int], standin: Install) -> None:
    standin(sdk)
    weight = tf.Variable([1.0], dtype=tf.float16)
    scaled = load_als()(make_optimizer(settings_of(), Batch(1, 1, 1), 1), initial_loss_scaling_factor=1)
    factors = [1.0]
    for _ in range(27):
        scaled.apply_gradients([(tf.constant([0.0], tf.float16), weight)])
        factors.append(float(scaled.loss_scaling_factor))
    assert [update for update in range(1, 28) if factors[update] == 2 * factors[update - 1]] == moves
