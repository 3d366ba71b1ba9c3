"""Image networks on the IPU backend, divided into stages or not, against the same training on CPUs.

The network is a residual block with batch norm, and in one test a published one, which takes much longer to trace.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import ipu_backend, plan_of

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.host_events import HostEvents
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.topology.planning.popdist import Place
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.backends.interface import Feed
from ipulaunch.workers.backends.ipu.backend import IpuBackend
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest
from ipulaunch.workers.models.measures import Measure
from ipulaunch.workers.models.optimizers import make_optimizer
from ipulaunch.workers.run import run_instance
from ipulaunch.workers.state.checkpoints import load

pytestmark = pytest.mark.usefixtures("smooth")
Install = Callable[..., Place]

SMALL = ("data.synthetic_data=cpu", "data.side=8", "data.n_train=40", "data.n_valid=11", "data.classes=10")
SMALL += ("data.augment=false", "training.micro_batch_size=2", "training.num_epochs=2", "schedule.name=const")
TWO_STAGES = ("pipeline.splits=[conv3_block1_post_addition_relu]",)


class Left(NamedTuple):
    """What a run leaves."""

    weights: Dict[str, np.ndarray]
    optimizer: List[np.ndarray]
    rows: List[Dict[str, Any]]


def settings_of(workload: str, *texts: str) -> Any:
    overrides = [assignment(text, "--set") for text in (*SMALL, *texts)]
    return resolve(workload, rehearsal=True, overrides=overrides).settings


def run(path: Path, settings: Any, place: Place, make: Callable[[Any, Plan], Any], workload: str = "cifar10") -> Left:
    training = settings.training
    batch = Batch(training.micro_batch_size, place.replicas, training.gradient_accumulation_count or 1)
    plan, directory = plan_of(batch, ipus_per_replica=place.ipus_per_replica), RunDirectory(path)
    records = Records(directory, 0)
    job, backend = Job(workload, "cpu", settings), make(settings, plan)
    stop = StopRequest(directory, 0, backend.collective)
    records.done(run_instance(Instance(job, plan, 0, backend, directory, records, 1, stop)))
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    saved = sorted((path / "checkpoints").iterdir()) if (path / "checkpoints").exists() else []
    if not saved:
        return Left({}, [], rows)
    last, names = load(saved[-1]), json.loads((saved[-1] / "manifest.json").read_text())["names"]
    return Left(dict(zip(names, last.weights)), list(last.optimizer), rows)


def on_cpus(path: Path, settings: Any, place: Place) -> Left:
    return run(path, settings, place, lambda *given: CpuBackend(*given, 0, Alone()))


@pytest.fixture()
def placed(standin: Install, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    """The stand-in, as an instance of so many replicas of so many IPUs under poprun."""

    def install(replicas: int, ipus: int = 1, sdk: str = "3.4") -> Place:
        monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", str(ipus))
        return standin(sdk, replicas=replicas)

    return install


@pytest.fixture()
def alone(standin: Install) -> Callable[..., Place]:
    """The stand-in, in one process that has all the replicas, without poprun."""

    def install(replicas: int, ipus: int = 1, sdk: str = "3.4") -> Place:
        return standin(sdk)._replace(local_replicas=replicas, replicas=replicas, ipus_per_replica=ipus)

    return install


def assert_same(found: Left, expected: Left, atol: float) -> None:
    """The same weights, batch statistics among them, optimizer, and measures."""
    assert found.weights.keys() == expected.weights.keys()
    for name, value in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], value, atol=atol, err_msg=name)
    assert len(found.optimizer) == len(expected.optimizer)
    for mine, theirs in zip(found.optimizer, expected.optimizer):
        np.testing.assert_allclose(mine, theirs, atol=atol)
    assert [row["update"] for row in found.rows] == [row["update"] for row in expected.rows]
    for mine, theirs in zip(found.rows, expected.rows):
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            if name in theirs:
                assert mine[name] == pytest.approx(theirs[name], abs=10 * atol)


CASES = {
    "a micro-batch per update, group norm, smoothed labels": (
        1,
        (
            *("training.gradient_accumulation_count=1", "training.num_epochs=1", "model.label_smoothing=0.1"),
            *("model.norm_layer=group_norm", "model.norm_groups=4"),
        ),
    ),
    "padded, scaled": (
        1,
        ("training.gradient_accumulation_count=3", "training.remainder=pad", "optimizer.loss_scaling=128"),
    ),
    "Interleaved, floats": (
        2,
        (
            *(*TWO_STAGES, "training.gradient_accumulation_count=2", "pipeline.schedule=Interleaved"),
            "data.host_preprocess=true",
        ),
    ),
    "Sequential on one IPU, scaled": (
        1,
        (
            *(*TWO_STAGES, "training.gradient_accumulation_count=3", "pipeline.schedule=Sequential"),
            *("pipeline.device_mapping=[0, 0]", "optimizer.loss_scaling=64"),
        ),
    ),
}


@pytest.mark.usefixtures("one_residual_block")
@pytest.mark.parametrize("case", CASES)
def test_training_equals_the_cpu_backend(case: str, placed: Any, tmp_path: Path) -> None:
    assert_equals_cpus(*CASES[case], placed, tmp_path)


@pytest.mark.usefixtures("one_residual_block")
@pytest.mark.parametrize("case", CASES)
def test_replicas_of_one_process_equal_the_cpu_backend(case: str, alone: Any, tmp_path: Path) -> None:
    assert_equals_cpus(*CASES[case], alone, tmp_path)


def test_a_published_network_trains_as_on_the_cpu_backend(placed: Any, tmp_path: Path) -> None:
    grouped = (*TWO_STAGES, "training.gradient_accumulation_count=4", "training.num_epochs=1")
    assert_equals_cpus(2, grouped, placed, tmp_path)


def assert_equals_cpus(ipus: int, texts: Sequence[str], placed: Any, tmp_path: Path) -> None:
    settings, place = settings_of("cifar10", "optimizer.learning_rate=0.01", *texts), placed(2, ipus)
    found = run(tmp_path / "ipu", settings, place, ipu_backend)
    assert_same(found, on_cpus(tmp_path / "cpu", settings, place), 1e-5)


def test_batch_statistics_follow_the_mean_of_all_micro_batches(placed: Any) -> None:
    """Two replicas with two micro-batches each of one number: their mean enters, once for the update."""
    settings = settings_of("cifar10", "optimizer.learning_rate=0.0001")
    placed(2)
    batch = Batch(2, 2, 2)
    backend = ipu_backend(settings, plan_of(batch))
    with backend.scope():
        inputs = tf.keras.Input((1, 1, 1), name="image")
        norm = tf.keras.layers.BatchNormalization(momentum=0.9)
        model = tf.keras.Model(inputs, tf.keras.layers.Flatten()(norm(inputs)))
        optimizer = make_optimizer(settings, batch, 1)
        measures = [Measure("loss", lambda targets, outputs: tf.reduce_mean(outputs, axis=-1))]
        training = backend.prepare(model, optimizer, measures, HostEvents(1, 1, 1, 0, 0, 1))
    values = np.array([1, 3, 10, 10, 4, 8, 0, 2], np.float32).reshape(4, 2, 1, 1, 1)
    stream = tf.data.Dataset.from_tensor_slices((values, np.zeros((4, 2), np.int32)))
    training.fit(Feed(stream), epochs=1, steps_per_epoch=2, callbacks=[])
    share = 1 - 0.9
    assert norm.moving_mean.numpy() == pytest.approx([share * np.mean([2, 10, 6, 1])])
    assert norm.moving_variance.numpy() == pytest.approx([1 + share * (np.mean([2, 0, 8, 2]) - 1)], rel=1e-3)
    assert len(optimizer.weights) == 1 + 2  # momentum for gamma and beta alone


@pytest.mark.usefixtures("one_residual_block")
@pytest.mark.parametrize("precision", ["16.32", "16.16"])
def test_training_in_16_bits_is_close_to_the_cpu_backend(precision: str, placed: Any, tmp_path: Path) -> None:
    texts = (*TWO_STAGES, f"training.precision='{precision}'", "optimizer.loss_scaling=128", "training.num_epochs=1")
    texts += ("training.gradient_accumulation_count=4", "optimizer.learning_rate=0.001")
    settings, place = settings_of("cifar10", *texts), placed(2, 2)
    found = run(tmp_path / "ipu", settings, place, ipu_backend)
    assert_same(found, on_cpus(tmp_path / "cpu", settings, place), 5e-3)


@pytest.mark.usefixtures("one_residual_block")
def test_adam_in_16_bits_validates_to_a_number_on_both_backends(placed: Any, tmp_path: Path) -> None:
    texts = ("training.precision='16.16'", "optimizer.name=adam", "optimizer.momentum=0", "training.num_epochs=1")
    settings, place = settings_of("cifar10", *texts, "optimizer.learning_rate=0.001"), placed(2)
    found = run(tmp_path / "ipu", settings, place, ipu_backend)
    assert_same(found, on_cpus(tmp_path / "cpu", settings, place), 5e-3)
    assert all(np.isfinite(row["val_loss"]) for row in found.rows if "val_loss" in row)
    assert max(np.abs(value).max() for name, value in found.weights.items() if name.endswith("kernel:0")) < 1


@pytest.mark.usefixtures("one_residual_block")
@pytest.mark.parametrize("texts", [(), TWO_STAGES], ids=["one IPU", "pipelined"])
def test_validation_of_the_same_checkpoint_is_the_same(texts: Any, placed: Any, tmp_path: Path) -> None:
    """11 samples are 3 steps of 2 x 2; a pipeline of two stages makes them 4."""
    accumulation = "training.gradient_accumulation_count=4"
    place = placed(2, 2 if texts else 1)
    trained = on_cpus(tmp_path / "trained", settings_of("cifar10", accumulation, *texts), place)
    only = ("training.training=false", f"training.checkpoint_input_dir={tmp_path / 'trained' / 'checkpoints'}")
    settings = settings_of("cifar10", accumulation, *texts, *only)
    expected = [row for row in trained.rows if "checkpoint" in row]
    found = run(tmp_path / "ipu", settings, place, ipu_backend)
    assert len(found.rows) == len(expected) == 2
    for mine, theirs in zip(found.rows, expected):
        assert mine["checkpoint"] == theirs["checkpoint"]
        assert mine["val_loss"] == pytest.approx(theirs["val_loss"], rel=1e-5)
        assert mine["val_accuracy"] == theirs["val_accuracy"]


@pytest.mark.usefixtures("one_residual_block")
def test_a_pipeline_validates_in_its_stages_without_stochastic_rounding(
    placed: Any, read_calls: Any, tmp_path: Path
) -> None:
    texts = (*TWO_STAGES, "training.gradient_accumulation_count=4", "device.stochastic_rounding=on")
    run(tmp_path / "run", settings_of("cifar10", *texts), placed(2, 2), ipu_backend)
    calls = read_calls(tmp_path / "calls.jsonl", 0)
    names = [name for name, _ in calls]
    assert names.count("IPUConfig.configure_ipu_system") == 2
    start = names.index("Model.fit") + 1
    assert calls[start : start + 3] == [
        ("IPUConfig.floating_point_behaviour.esr =", {"value": "StochasticRoundingBehaviour.OFF"}),
        ("IPUConfig.configure_ipu_system", {}),
        ("tensorflow.python.ipu.utils.reset_ipu_seed", {"seed": 0, "experimental_identical_replicas": True}),
    ]
    (divided,) = [given for name, given in calls[start:] if name == "Model.set_pipelining_options"]
    assert divided["gradient_accumulation_steps_per_replica"] == 4  # 3 steps, in turns of 2 x 2 stages
    (assigned,) = [given for name, given in calls[start:] if name == "Model.set_pipeline_stage_assignment"]
    stages = dict(text.split(": ") for text in assigned["pipeline_stage_assignment"])
    assert stages["conv3_block1_add"] == "0"
    assert stages["conv3_block1_post_addition_relu"] == stages["validation_rows"] == "1"


@pytest.mark.usefixtures("one_residual_block")
def test_fused_preprocessing_normalises_as_the_plain_layer(placed: Any, read_calls: Any, tmp_path: Path) -> None:
    texts = ("training.gradient_accumulation_count=2", "optimizer.learning_rate=0.0001", "data.mean=[100.0]")
    place = placed(2)
    settings = settings_of("cifar10", *texts, "device.fused_preprocessing=true")
    found = run(tmp_path / "ipu", settings, place, ipu_backend)
    assert_same(found, on_cpus(tmp_path / "cpu", settings, place), 2e-3)  # in 16 bits, as the operation is
    names = {name for name, _ in read_calls(tmp_path / "calls.jsonl", 0)}
    assert "tensorflow.python.ipu.ops.image_ops.normalise_image" in names


@pytest.mark.usefixtures("one_residual_block")
@pytest.mark.parametrize(("workload", "is_normalised"), [("cifar10", False), ("cosmoflow", True)])
def test_data_that_the_device_makes_up_never_leaves_the_host(
    workload: str, is_normalised: bool, placed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--show_progress_bar=false")
    texts = ("data.synthetic_data=ipu", "data.side=8", "data.n_train=8", "data.n_valid=5", "training.num_epochs=1")
    more = ("model.n_conv_layers=2",) if workload == "cosmoflow" else ("data.classes=10", "schedule.name=const")
    more = (*more, "training.micro_batch_size=1", f"data.host_preprocess={is_normalised}")
    overrides = [assignment(text, "--set") for text in (*texts, *more)]
    settings = resolve(workload, rehearsal=True, overrides=overrides).settings
    place = placed(2)

    def make(*given: Any) -> IpuBackend:
        backend = ipu_backend(*given)
        wanted = "--show_progress_bar=false --use_synthetic_data --synthetic_data_initializer=random"
        assert os.environ["TF_POPLAR_FLAGS"] == wanted
        return backend

    left = run(tmp_path / "run", settings, place, make, workload)
    assert [row.get("loss", row.get("val_loss")) for row in left.rows] == [0.0, 0.0]


def test_what_the_device_makes_up_can_be_compiled_alone(
    placed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--executable_cache_path=/cache")
    texts = ("data.synthetic_data=ipu", "data.side=8", "data.n_train=8", "data.n_valid=5", "device.compile_only=true")
    overrides = [assignment(text, "--set") for text in (*texts, "model.n_conv_layers=2", "training.num_epochs=1")]
    settings = resolve("cosmoflow", rehearsal=True, overrides=overrides).settings
    placed(2)
    plan, directory = plan_of(Batch(1, 2, 1)), RunDirectory(tmp_path / "run")
    records, backend = Records(directory, 0), ipu_backend(settings, plan)
    stop = StopRequest(directory, 0, backend.collective)
    job = Job("cosmoflow", "ipu", settings)
    summary = run_instance(Instance(job, plan, 0, backend, directory, records, 1, stop))
    records.done(summary)
    assert summary["compiled"] == ["training", "validation"]


@pytest.mark.usefixtures("one_residual_block")
def test_a_process_by_hand_takes_the_ipus_of_its_stages(standin: Install, read_calls: Any, tmp_path: Path) -> None:
    texts = (*TWO_STAGES, "training.gradient_accumulation_count=4", "training.num_epochs=1")
    run(tmp_path / "run", settings_of("cifar10", *texts), standin("3.4"), ipu_backend)
    assert ("IPUConfig.auto_select_ipus =", {"value": 2}) in read_calls(tmp_path / "calls.jsonl", 0)
