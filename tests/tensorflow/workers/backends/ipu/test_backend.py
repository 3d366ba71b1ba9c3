"""The IPU backend against the stand-in of each SDK: the calls it makes, and the weights that come of them."""

from __future__ import annotations

import importlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import ipu_backend, plan_of
from fixtures.trainings import TINY

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.settings.cosmoflow import CosmoflowModel, CosmoflowSettings
from ipulaunch.configs.settings.optimization import Optimizer
from ipulaunch.data_pipeline.order import Shuffle, epoch_order
from ipulaunch.data_pipeline.sources.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.workers.backends.collective import texts_of
from ipulaunch.workers.backends.interface import Feed
from ipulaunch.workers.backends.ipu.backend import IpuBackend
from ipulaunch.workers.backends.ipu.sdk import OverHosts, load_sdk
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.models.optimizers import make_optimizer
from ipulaunch.workers.models.variables import read_variable

SDKS = ("2.6", "3.0", "3.1", "3.4")
SETTINGS = CosmoflowSettings(
    model=CosmoflowModel(conv_size=2, n_conv_layers=2, fc1_size=8, fc2_size=4, dropout=0.0),
    optimizer=Optimizer("sgd", 0.1),
)
MEASURES = measures_of(SETTINGS)
ONE_UPDATE = HostEvents(1, 1, 1, 0, 0, 1)

Install = Callable[..., Any]


def configured(workers: str) -> List[Any]:
    """What every configuration begins with, for default settings."""
    return [
        ("IPUConfig", {}),
        ("IPUConfig.allow_recompute =", {"value": False}),
        (
            "IPUConfig.convolutions.poplar_options =",
            {"value": {"gatherConvOutput": "false", "enableConvDithering": "false"}},
        ),
        ("IPUConfig.matmuls.poplar_options =", {"value": {}}),
        ("IPUConfig.compilation_poplar_options =", {"value": {"target.deterministicWorkers": workers}}),
        ("IPUConfig.scheduling.algorithm =", {"value": "SchedulingAlgorithm.CHOOSE_BEST"}),
        ("IPUConfig.floating_point_behaviour.inv =", {"value": False}),
        ("IPUConfig.floating_point_behaviour.div0 =", {"value": False}),
        ("IPUConfig.floating_point_behaviour.oflo =", {"value": False}),
        ("IPUConfig.floating_point_behaviour.nanoo =", {"value": False}),
        ("IPUConfig.floating_point_behaviour.esr =", {"value": "StochasticRoundingBehaviour.OFF"}),
        ("IPUConfig.norms.use_stable_statistics =", {"value": False}),
        ("IPUConfig.norms.experimental.distributed_batch_norm_replica_group_size =", {"value": 1}),
        ("IPUConfig.experimental.enable_prng_stability =", {"value": False}),
        ("IPUConfig.device_connection.enable_remote_buffers =", {"value": True}),
        ("IPUConfig.device_connection.type =", {"value": "DeviceConnectionType.ON_DEMAND"}),
    ]


ATTACHED = [
    ("IPUConfig.configure_ipu_system", {}),
    ("tensorflow.python.ipu.utils.reset_ipu_seed", {"seed": 0, "experimental_identical_replicas": True}),
]


def expected_calls(sdk: str) -> List[Any]:
    """The tiny job in one instance of 4 replicas."""
    accumulation = {
        "gradient_accumulation_steps_per_replica": 2,
        "gradient_accumulation_reduction_method": "GradientAccumulationReductionMethod.RUNNING_MEAN",
        "gradient_accumulation_optimizer_kwargs": {"offload_weight_update_variables": False},
    }
    fit: Dict[str, Any] = {"model": "cosmoflow", "x": "Dataset", "epochs": 2, "verbose": 0}
    fit.update(callbacks=["WithoutLossScale", "Progress"], steps_per_epoch=16)  # 2 updates x 2 steps x 4 replicas
    compiled = {"model": "cosmoflow", "optimizer": "Adadelta", "loss": "function", "metrics": ["MeanOf"]}
    return [
        ("popdist.isPopdistEnvSet", {}),
        ("tensorflow.python.ipu.horovod.init" if sdk == "2.6" else "popdist.init", {}),
        ("popdist.isPopdistEnvSet", {}),
        *configured("portable"),
        (
            "popdist.tensorflow.set_ipu_config",
            {"config": "IPUConfig", "ipus_per_replica": 1, "configure_device": True},
        ),
        *ATTACHED,
        ("PopDistStrategy", {}),
        ("Model.set_gradient_accumulation_options", accumulation),
        ("Model.compile", {**compiled, "steps_per_execution": 4}),
        ("Model.fit", fit),
        ("Model.compile", {"model": "validator", "steps_per_execution": 2}),
        *2 * [("Model.predict", {"model": "validator", "x": "Dataset", "verbose": 0})],
    ]


def assert_same_state(found: Any, expected: Any) -> None:
    assert len(found.state) == len(expected.state)
    for mine, theirs in zip(found.state, expected.state):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("sdk", [*SDKS[:-1], pytest.param(SDKS[-1], marks=pytest.mark.core)])
def test_training_equals_the_cpu_backend_on_every_sdk(
    sdk: str, standin: Install, train_tiny: Any, on_cpus: Any, read_calls: Any, tmp_path: Path
) -> None:
    found = train_tiny(tmp_path / "run", standin(sdk, replicas=4).replicas, lambda *given: ipu_backend(TINY, *given))
    assert read_calls(tmp_path / "calls.jsonl", 0) == expected_calls(sdk)
    expected = on_cpus(4)
    assert_same_state(found, expected)
    events = [json.loads(line) for line in (tmp_path / "run/instance-000/events.jsonl").read_text().splitlines()]
    assert not [event["message"] for event in events if event["event"] == "warning"]
    times = [event["seconds"] for event in events if event["event"] == "times"]
    assert [("device" in each, "data" in each) for each in times[:2]] == [(True, False)] * 2  # the host sees the call
    assert len(found.curve) == len(expected.curve)
    for mine, theirs in zip(found.curve, expected.curve):
        for name in theirs:
            assert mine[name] == (pytest.approx(theirs[name], rel=1e-5) if name != "checkpoint" else theirs[name])


def test_the_module_is_there_without_the_sdk() -> None:
    with pytest.raises(NotReadyError, match="the Poplar SDK's TensorFlow is not here"):
        load_sdk()


class Line(ArraySource):
    """Samples x = 0..6 with targets 2 x; 16-bit, as the records of CosmoFlow are."""

    samples = 7
    inputs, targets = (np.int16, (1,)), (np.float32, (1,))

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        return ids.astype(np.int16)[:, None], 2 * ids.astype(np.float32)[:, None]


def half_of(inputs: Any) -> Any:
    return tf.cast(inputs, tf.float32) / 2


def prepared(backend: IpuBackend, *more: Any) -> Any:
    """A model that halves its input, with other layers after that, ready on a backend."""
    with backend.scope():
        inputs = tf.keras.Input((1,), dtype="int16", name="line")
        outputs = tf.keras.layers.Lambda(half_of)(inputs)
        for layer in more:
            outputs = layer(outputs)
        optimizer = make_optimizer(SETTINGS, backend.batch, 1)
        return backend.prepare(tf.keras.Model(inputs, outputs), optimizer, MEASURES, ONE_UPDATE)


@pytest.mark.parametrize("batch", [Batch(1, 1, 1), Batch(2, 4, 3), Batch(3, 2, 1)], ids=str)
def test_validation_is_the_mean_over_the_whole_set(batch: Batch, standin: Install) -> None:
    standin("3.4", replicas=batch.replicas)
    backend = ipu_backend(SETTINGS, plan_of(batch))
    training = prepared(backend)
    stream = validation_stream(Line(), batch, backend.replicas, threads=1)
    errors = 1.5 * np.arange(7)
    expected = {"loss": pytest.approx(np.mean(errors**2)), "mae": pytest.approx(np.mean(errors))}
    assert backend.validate(training, Feed(stream), 7, batch.micro_size, lambda *done: None) == expected


def test_every_replica_gets_the_samples_that_the_batch_says(
    standin: Install, replica_slice: Callable[..., slice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither gradients nor metrics would show it, since all replicas are averaged."""
    batch = Batch(1, 2, 3)
    standin("3.0", replicas=2)
    running = importlib.import_module("ipu_standin.running")
    step, targets = running._step, []

    def noted(sdk: Any, model: Any, options: Any, data: Any, own: Any) -> Any:
        targets.append(int(data[1][0, 0]))
        return step(sdk, model, options, data, own)

    monkeypatch.setattr(running, "_step", noted)
    backend = ipu_backend(SETTINGS, plan_of(batch))
    training = prepared(backend, tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"))
    stream = training_stream(
        Line(),
        batch,
        backend.replicas,
        shuffle=Shuffle(0),
        updates=range(1),
        by_replica=backend.runs_by_replica,
        threads=1,
    )
    training.fit(Feed(stream), epochs=1, steps_per_epoch=3, callbacks=[])

    order = epoch_order(7, Shuffle(0), 0)
    mine = np.concatenate([order[replica_slice(0, step, 1, batch)] for step in range(3)])
    assert targets[1::2] == [2 * sample for sample in mine]
    everyone = [order[replica_slice(0, step, replica, batch)] for step in range(3) for replica in range(2)]
    assert training.model.history.history["mae"] == [pytest.approx(1.5 * np.mean(np.concatenate(everyone)))]


def test_a_resumed_training_may_have_shorter_device_calls(standin: Install) -> None:
    batch = Batch(1, 1, 1)
    standin("3.4", replicas=1)
    backend = ipu_backend(SETTINGS, plan_of(batch))
    with backend.scope():
        inputs = tf.keras.Input((1,), dtype="int16", name="line")
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(tf.keras.layers.Lambda(half_of)(inputs)))
        optimizer = make_optimizer(SETTINGS, batch, 1)
        training = backend.prepare(model, optimizer, MEASURES, HostEvents(1, 6, 6, 0, 0, 6))
    stream = training_stream(
        Line(), batch, range(1), shuffle=Shuffle(0), updates=range(2, 6), by_replica=False, threads=1
    )
    training.fit(Feed(stream), epochs=2, steps_per_epoch=2, callbacks=[])
    assert read_variable(optimizer.iterations) == 4


class Returns(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Counts how often the device returns to the host."""

    count = 0

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        self.count += 1


def test_after_a_resume_inside_a_device_call_the_next_ones_have_their_full_length(standin: Install) -> None:
    batch = Batch(1, 1, 1)
    standin("3.4", replicas=1)
    training, returns = prepared(ipu_backend(SETTINGS, plan_of(batch)), tf.keras.layers.Dense(1)), Returns()
    for updates in (range(4, 8), range(8, 16)):
        stream = training_stream(
            Line(), batch, range(1), shuffle=Shuffle(0), updates=updates, by_replica=False, threads=1
        )
        training.fit(Feed(stream), epochs=1, steps_per_epoch=len(updates), callbacks=[returns])
    assert returns.count == 2


def over_hosts(act: Callable[[OverHosts, int], Any]) -> List[Any]:
    """What each of three instances gets, as threads that meet for every sum."""
    meeting, given = threading.Barrier(3, timeout=600), [None, None, None]  # type: Tuple[Any, List[Any]]

    def run(index: int) -> Any:
        def sum_tensor(tensor: Any) -> Any:
            assert tf.size(tensor) > 0
            given[index] = tensor
            meeting.wait()
            total = tf.add_n(given)
            meeting.wait()  # nobody gives anew before all have their sum
            return total

        return act(OverHosts(sum_tensor, index, 3), index)

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(run, range(3)))


def test_sums_over_hosts_keep_all_64_bits() -> None:
    values = [np.array([0.1, 1e-9]), np.array([1e8, -2.0]), np.array([0.3, 1e16])]
    for total in over_hosts(lambda hosts, index: hosts.sum(values[index])):
        assert np.array_equal(total, values[0] + values[1] + values[2])


def test_each_instance_sees_what_the_others_give() -> None:
    for rows in over_hosts(lambda hosts, index: hosts.rows(np.array([index, 2**40 + index]))):
        assert rows.tolist() == [[0, 2**40], [1, 2**40 + 1], [2, 2**40 + 2]]


def test_the_first_text_goes_to_all() -> None:
    texts = ["runs/first", "a longer one than the first", ""]
    assert over_hosts(lambda hosts, index: hosts.first(texts[index])) == 3 * ["runs/first"]
    texts.reverse()
    assert over_hosts(lambda hosts, index: hosts.first(texts[index])) == 3 * [""]
    assert over_hosts(lambda hosts, index: texts_of(hosts, texts[index])) == 3 * [texts]
