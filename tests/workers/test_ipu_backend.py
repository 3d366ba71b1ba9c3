"""The IPU backend against the stand-in of each SDK: the calls it makes, and the weights that come of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Set, Tuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import NotReadyError, SettingsError
from ipulaunch.configs.sections import Optimizer
from ipulaunch.data_pipeline.order import Shuffle, epoch_order
from ipulaunch.data_pipeline.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.batch import replica_slice
from ipulaunch.topology.popdist import Place
from ipulaunch.workers.backends import ipu as backend_module
from ipulaunch.workers.backends.ipu import IpuBackend, OverHosts
from ipulaunch.workers.measures import MEAN_ABSOLUTE_ERROR, MEAN_SQUARED_ERROR
from ipulaunch.workers.optimizers import make_optimizer

SDKS = ("2.6", "3.0", "3.1", "3.4")
MEASURES = (MEAN_SQUARED_ERROR, MEAN_ABSOLUTE_ERROR)
SGD = Optimizer("sgd", 0.1)

Install = Callable[..., Place]


def expected_calls(sdk: str) -> List[Any]:
    """The tiny job in one instance of 4 replicas."""
    running_mean = "GradientAccumulationReductionMethod.RUNNING_MEAN"
    replication = [("Model.set_replication_options", {"replicated_metric_reduction_method": "MEAN"})]
    fit: Dict[str, Any] = {"model": "cosmoflow", "x": "Dataset", "epochs": 2, "verbose": 0}
    fit.update(callbacks=["MeanOverInstances", "_Progress"], steps_per_epoch=16)  # 2 updates x 2 steps x 4 replicas
    compiled = {"model": "cosmoflow", "optimizer": "Adadelta", "loss": "function", "metrics": ["MeanOf"]}
    return [
        ("IPUConfig", {}),
        ("popdist.isPopdistEnvSet", {}),
        ("tensorflow.python.ipu.horovod.init" if sdk == "2.6" else "popdist.init", {}),
        (
            "popdist.tensorflow.set_ipu_config",
            {"config": "IPUConfig", "ipus_per_replica": 1, "configure_device": True},
        ),
        ("IPUConfig.configure_ipu_system", {}),
        ("PopDistStrategy", {}),
        (
            "Model.set_gradient_accumulation_options",
            {
                "gradient_accumulation_steps_per_replica": 2,
                "gradient_accumulation_reduction_method": running_mean,
            },
        ),
        *(replication if sdk >= "3.1" else []),
        ("Model.compile", {**compiled, "steps_per_execution": 4}),
        ("Model.fit", fit),
        ("Model.compile", {"model": "validator", "steps_per_execution": 2}),
        *2 * [("Model.predict", {"model": "validator", "x": "Dataset", "verbose": 0})],
    ]


def assert_same_state(found: Any, expected: Any) -> None:
    assert found.state.keys() == expected.state.keys()
    for name, value in expected.state.items():
        np.testing.assert_allclose(found.state[name], value, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("sdk", SDKS)
def test_training_equals_the_cpu_backend_on_every_sdk(
    sdk: str, standin: Install, train_tiny: Any, on_cpus: Any, read_calls: Any, tmp_path: Path
) -> None:
    found = train_tiny(tmp_path / "run", standin(sdk, replicas=4), IpuBackend)
    assert read_calls(tmp_path / "calls.jsonl", 0) == expected_calls(sdk)
    expected = on_cpus(4)
    assert_same_state(found, expected)
    # Before SDK 3.1 the losses of training are those of one replica.
    names = [name for name in expected.curve[0] if sdk >= "3.1" or name.startswith("val_")]
    for mine, theirs in zip(found.curve, expected.curve):
        assert {name: mine[name] for name in names} == pytest.approx({name: theirs[name] for name in names}, rel=1e-5)


@pytest.mark.core
def test_a_worker_alone_takes_one_ipu(
    sdk_environment: Any, tiny_options: List[str], read_training: Any, read_calls: Any, on_cpus: Any, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "ipulaunch.workers", "cosmoflow", *tiny_options]
    done = subprocess.run(
        words, cwd=tmp_path, env=sdk_environment("3.4"), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert (run / "instance-000" / "done.json").exists() and (run / "summary.json").exists()
    assert_same_state(read_training(run), on_cpus(1))
    assert read_calls(tmp_path / "calls.jsonl", 0)[:5] == [
        ("IPUConfig", {}),
        ("popdist.isPopdistEnvSet", {}),
        ("IPUConfig.auto_select_ipus =", {"value": 1}),
        ("IPUConfig.configure_ipu_system", {}),
        ("IPUStrategy", {}),
    ]


def test_a_worker_without_the_sdk_says_what_to_do(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("POPDIST_")}
    words = [sys.executable, "-m", "ipulaunch.workers", "cosmoflow", "--backend", "ipu"]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4
    assert "error: the Poplar SDK's TensorFlow is not here: No module named 'popdist'" in done.stderr
    assert "hint: source <sdk>/enable" in done.stderr


def test_the_module_is_there_without_the_sdk() -> None:
    with pytest.raises(NotReadyError, match="the Poplar SDK's TensorFlow is not here"):
        backend_module.load_sdk()


def test_several_ipus_per_replica_need_a_divided_model() -> None:
    with pytest.raises(SettingsError, match="2 IPUs per replica"):
        IpuBackend(Batch(1, 1, 1), Place(0, 1, 0, 1, 0, 1, 1, 2))


class Line(ArraySource):
    """Samples x = 0..6 with targets 2 x; 16-bit, as the records of CosmoFlow are."""

    samples = 7
    inputs, targets = (np.int16, (1,)), (np.float32, (1,))

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        return ids.astype(np.int16)[:, None], 2 * ids.astype(np.float32)[:, None]


def half_of(inputs: Any) -> Any:
    return tf.cast(inputs, tf.float32) / 2


@pytest.mark.parametrize("batch", [Batch(1, 1, 1), Batch(2, 4, 3), Batch(3, 2, 1)], ids=str)
def test_validation_is_the_mean_over_the_whole_set(batch: Batch, standin: Install) -> None:
    place = standin("3.4", replicas=batch.replicas)
    backend = IpuBackend(batch, place)
    with backend.scope():
        inputs = tf.keras.Input((1,), dtype="int16", name="line")
        model = tf.keras.Model(inputs, tf.keras.layers.Lambda(half_of)(inputs))
        training = backend.prepare(model, make_optimizer(SGD, 1), MEASURES, 1)
    stream = validation_stream(Line(), batch, place, threads=1)
    errors = 1.5 * np.arange(7)
    expected = {"loss": pytest.approx(np.mean(errors**2)), "mae": pytest.approx(np.mean(errors))}
    assert backend.validate(training, stream, 7) == expected


def test_every_replica_gets_the_samples_that_the_batch_says(standin: Install) -> None:
    """Gradients would not show it, since all replicas are averaged; SDK 3.0 logs the loss of the last one alone."""
    batch, place = Batch(1, 2, 3), standin("3.0", replicas=2)
    backend = IpuBackend(batch, place)
    with backend.scope():
        inputs = tf.keras.Input((1,), dtype="int16", name="line")
        halves = tf.keras.layers.Lambda(half_of)(inputs)
        layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        training = backend.prepare(tf.keras.Model(inputs, layer(halves)), make_optimizer(SGD, 1), MEASURES, 1)
    by_replica = backend.runs_by_replica
    stream = training_stream(Line(), batch, place, shuffle=Shuffle(0), epochs=1, by_replica=by_replica, threads=1)
    training.fit(stream, epochs=1, steps_per_epoch=3, callbacks=[], verbose=0)

    order = epoch_order(7, Shuffle(0), 0)
    mine = np.concatenate([order[replica_slice(0, step, 1, batch)] for step in range(3)])
    assert training.model.history.history["mae"] == [pytest.approx(1.5 * np.mean(mine))]


def test_16_bit_inputs_of_a_branched_model_are_refused(standin: Install) -> None:
    backend = IpuBackend(Batch(1, 1, 1), standin("3.4"))
    with backend.scope():
        inputs = tf.keras.Input((1,), dtype="int16")
        halves = tf.keras.layers.Lambda(half_of)(inputs)
        model = tf.keras.Model(inputs, tf.keras.layers.Add()([halves, tf.keras.layers.Dense(1)(halves)]))
        with pytest.raises(SettingsError, match="no plain chain of layers"):
            backend.prepare(model, make_optimizer(SGD, 1), MEASURES, 1)


def over_hosts(act: Callable[[OverHosts, int], Any]) -> List[Any]:
    """What each of three instances gets, as threads that meet for every sum."""
    meeting, given = threading.Barrier(3, timeout=10), [None, None, None]  # type: Tuple[Any, List[Any]]

    def run(index: int) -> Any:
        def sum_tensor(tensor: Any) -> Any:
            given[index] = tensor
            meeting.wait()
            total = tf.add_n(given)
            meeting.wait()  # nobody gives anew before all have their sum
            return total

        return act(OverHosts(sum_tensor, Place(index, 3, index, 3, index, 1, 3, 1)), index)

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(run, range(3)))


def test_sums_over_hosts_keep_all_64_bits() -> None:
    values = [np.array([0.1, 1e-9]), np.array([1e8, -2.0]), np.array([0.3, 1e16])]
    for total in over_hosts(lambda hosts, index: hosts.sum(values[index])):
        assert np.array_equal(total, values[0] + values[1] + values[2])


def test_the_first_text_goes_to_all() -> None:
    texts = ["runs/first", "a longer one than the first", ""]
    assert over_hosts(lambda hosts, index: hosts.first(texts[index])) == 3 * ["runs/first"]


# The stand-in itself: what an SDK would refuse.


def module(name: str) -> Any:
    return importlib.import_module(name)


def configured() -> Any:
    config = module("tensorflow.python.ipu").config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    return config


def scoped_model(**compiled: Any) -> Any:
    configured()
    with module("tensorflow.python.ipu").ipu_strategy.IPUStrategy().scope():
        inputs = tf.keras.Input((1,))
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))
        model.compile(optimizer=make_optimizer(SGD, 1), loss="mse", **compiled)
    return model


def data(count: int, dtype: Any = np.float32) -> tf.data.Dataset:
    ones = np.ones((count, 1), dtype)
    return tf.data.Dataset.from_tensor_slices((ones, ones)).batch(1, drop_remainder=True)


def accumulated(steps: Any, **more: Any) -> Any:
    model = scoped_model(steps_per_execution=3)
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=steps, **more)
    return model


def plain_model() -> Any:
    inputs = tf.keras.Input((1,))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs))


def reduce_hosts(value: Any, *more: Any) -> Any:
    module("popdist").init()
    return module("tensorflow.python.ipu.distributed").allreduce(value, *more)


def assign(name: str, value: Any) -> None:
    setattr(module("tensorflow.python.ipu").config.IPUConfig(), name, value)


SUM = tf.distribute.ReduceOp.SUM
MISTAKES = [
    ("3.4", "unknown attribute", lambda: module("tensorflow.python.ipu").config.IPUConfigs, AttributeError),
    ("3.4", "not imported yet", lambda: module("tensorflow.python.ipu").distributed, AttributeError),
    ("3.4", "horovod is gone", lambda: module("tensorflow.python.ipu.horovod"), ImportError),
    ("2.6", "distributed is not there yet", lambda: module("tensorflow.python.ipu.distributed"), ImportError),
    ("2.6", "init is not there yet", lambda: module("popdist").init, AttributeError),
    ("3.0", "no replication options yet", lambda: scoped_model().set_replication_options, AttributeError),
    ("3.4", "unknown setting", lambda: assign("auto_select_ipu", 1), ValueError),
    ("3.4", "setting of another type", lambda: assign("auto_select_ipus", "1"), TypeError),
    ("3.4", "a category is no setting", lambda: assign("io_tiles", 1), Exception),
    ("3.4", "unknown keyword", lambda: module("popdist.tensorflow").set_ipu_config(ipus=1), TypeError),
    ("3.4", "missing argument", lambda: reduce_hosts(np.ones(1, np.float32)), TypeError),
    ("3.4", "a word is no reduction", lambda: reduce_hosts(np.ones(1, np.float32), "SUM"), AttributeError),
    ("3.4", "no 64-bit floats", lambda: reduce_hosts(np.ones(1), SUM), tf.errors.NotFoundError),
    ("3.4", "config after the fact", lambda: module("popdist.tensorflow").set_ipu_config(configured()), RuntimeError),
    ("3.4", "made outside the scope", lambda: plain_model().set_gradient_accumulation_options, AttributeError),
    ("3.4", "unknown reduction", lambda: accumulated(1, gradient_accumulation_reduction_method="MAX"), ValueError),
    ("3.4", "accumulation is a number", lambda: accumulated("2"), ValueError),
    ("3.4", "accumulation divides", lambda: accumulated(2).fit(data(3), verbose=0), RuntimeError),
    ("3.4", "executions divide", lambda: scoped_model(steps_per_execution=2).fit(data(3), verbose=0), ValueError),
    ("3.4", "no 16-bit feeds", lambda: scoped_model().fit(data(1, np.int16), verbose=0), TypeError),
    ("3.4", "more than there is", lambda: scoped_model().fit(data(2), steps_per_epoch=3, verbose=0), ValueError),
]


@pytest.mark.parametrize(("sdk", "what", "act", "error"), MISTAKES, ids=[f"{row[0]} {row[1]}" for row in MISTAKES])
def test_the_stand_in_refuses(sdk: str, what: str, act: Callable[[], Any], error: Any, standin: Install) -> None:
    standin(sdk)
    with pytest.raises(error):
        act()


def test_an_instance_that_does_not_ask_popdist_would_train_alone(standin: Install) -> None:
    standin("3.4", replicas=2)
    with pytest.raises(RuntimeError, match="before set_ipu_config"):
        configured()


def test_horovod_has_to_be_started_by_hand(standin: Install) -> None:
    standin("2.6", replicas=2)
    with pytest.raises(RuntimeError, match="call init"):
        module("tensorflow.python.ipu.horovod.popdist_strategy").PopDistStrategy()


# The source against the tables: also what no test runs.


REDUCTION = "tensorflow.python.ipu.gradient_accumulation.GradientAccumulationReductionMethod"


class Uses(ast.NodeVisitor):
    """Every name of the SDK in a source, with the keywords it is called with and whether an SDK may lack it."""

    roots = {"popdist": "popdist", "ipu": "tensorflow.python.ipu", "config": "IPUConfig", "model": "Model"}

    def __init__(self) -> None:
        self.found: Set[Tuple[str, Tuple[str, ...], bool]] = set()
        self.names = dict(self.roots)
        self.optional = 0

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and node.module.startswith("tensorflow.python"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                self.names[alias.name] = full
                self.found.add((full, (), self.optional > 0))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._optional_if(node.name == "_import_sdk", node)  # looks for what this SDK has

    def visit_If(self, node: ast.If) -> None:
        self._optional_if("hasattr" in ast.dump(node.test), node)

    def _optional_if(self, condition: bool, node: ast.AST) -> None:
        self.optional += condition
        self.generic_visit(node)
        self.optional -= condition

    def visit_Call(self, node: ast.Call) -> None:
        name = self._full(node.func)
        if name:
            keywords = tuple(sorted(keyword.arg for keyword in node.keywords if keyword.arg))
            self.found.add((name, keywords, self.optional > 0))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._full(node)
        if name:
            self.found.add((name, (), self.optional > 0))
        else:
            self.generic_visit(node)

    def _full(self, node: ast.AST) -> str:
        parts: List[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if parts[:2] == ["sdk", "reduction_method"]:
            return ".".join([REDUCTION, *parts[2:]])
        root = self.names.get(node.id, "") if isinstance(node, ast.Name) else ""
        if not root or not parts or (root == "Model" and not parts[0].startswith("set_")):  # the rest is plain Keras
            return ""
        return ".".join([root, *parts])


def is_in(table: Any, name: str, keywords: Tuple[str, ...]) -> bool:
    head, _, last = name.rpartition(".")
    if head == "Model":
        return last in table.model_methods and set(keywords) <= set(table.model_methods[last].parameters)
    if head == "IPUConfig":
        return last in table.config or last in table.methods["tensorflow.python.ipu.config.IPUConfig"]
    if head in table.enums:
        return last in table.enums[head]
    if name in table.functions or name in table.classes:
        return set(keywords) <= set(table.signature_of(name).parameters)
    return name in table.names or name in table.modules


def test_every_name_in_the_source_is_in_the_tables(standin: Install) -> None:
    table = pytest.importorskip("ipu_standin.table")
    uses = Uses()
    uses.visit(ast.parse(Path(inspect.getsourcefile(backend_module) or "").read_text(encoding="utf-8")))
    tables = [table.Table(sdk) for sdk in SDKS]
    names = {name for name, _, _ in uses.found}
    assert {
        "popdist.isPopdistEnvSet",
        "popdist.init",
        "popdist.tensorflow.set_ipu_config",
        "tensorflow.python.ipu.config.IPUConfig",
        "tensorflow.python.ipu.horovod.allreduce",
        "tensorflow.python.ipu.distributed.host_collective_ops.all_reduce",
        "tensorflow.python.ipu.ipu_strategy.IPUStrategy",
        "IPUConfig.auto_select_ipus",
        "Model.set_gradient_accumulation_options",
        f"{REDUCTION}.RUNNING_MEAN",
    } <= names
    for name, keywords, is_optional in sorted(uses.found):
        having = [one.sdk for one in tables if is_in(one, name, keywords)]
        assert having if is_optional else having == list(SDKS), f"{name}({', '.join(keywords)}) is in {having} only"
