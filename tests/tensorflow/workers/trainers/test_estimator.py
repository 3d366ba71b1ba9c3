"""Estimators on CPUs: the same training whatever its division, continued and tested from its directory."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import plan_of

from ipulaunch.configs.errors import DataError, NotReadyError, SettingsError, StoppedError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology.planning.batch import make_batch
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest
from ipulaunch.workers.run import run_instance
from ipulaunch.workers.trainers import estimator

pytestmark = pytest.mark.usefixtures("smooth")
needs_estimators = pytest.mark.skipif(not hasattr(tf, "estimator"), reason="this TensorFlow has no Estimators")

# 4 updates of 8 images in an epoch, the last of 2 validation steps padded; no dropout unless it is asked for.
SMALL = (
    *("data.side=16", "data.n_train=32", "data.n_valid=11", "training.micro_batch_size=8", "training.num_epochs=1"),
    "optimizer.learning_rate=0.05",
)
Run = Callable[..., Dict[str, Any]]


def runs_in(base: Path) -> Run:
    def train(
        name: str, api: str, *texts: str, replicas: int = 1, stop: bool = False, where: str = "", asked: Any = None
    ) -> Dict[str, Any]:
        words = [*SMALL, "model.dropout=0", f"estimator.api={api}", f"estimator.model_dir={base / name}", *texts]
        settings = resolve("cifar10", rehearsal=True, overrides=[assignment(word, "--set") for word in words]).settings
        training = settings.training
        batch, _ = make_batch(
            training.micro_batch_size, replicas, training.gradient_accumulation_count, training.global_batch_size
        )
        plan = plan_of(batch, ipus_per_replica=settings.ipus_per_replica)
        directory = RunDirectory(base / (where or f"run-{len(list(base.glob('run-*')))}-{name}"))
        records, backend = Records(directory, 0), CpuBackend(settings, plan, 0, Alone())
        request = (asked or StopRequest)(directory, 0, backend.collective)
        request.is_asked = stop
        job = Job("cifar10", "cpu", settings)
        try:
            summary = run_instance(Instance(job, plan, 0, backend, directory, records, 1, request))
        except BaseException as error:
            records.error(error)  # which also closes its file
            raise
        records.done(summary)
        assert json.loads(directory.summary.read_text())["metrics"] == summary["metrics"]
        return summary

    return train


@pytest.fixture()
def run(tmp_path: Path) -> Run:
    return runs_in(tmp_path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one training of one replica, which nothing disturbed, has left its model and its run."""
    base = tmp_path_factory.mktemp("plain")
    runs_in(base)("model", "estimator", where="run")
    return base


def weights_in(directory: Path) -> Dict[str, np.ndarray]:
    newest = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(directory)))
    return {name: newest.get_tensor(name) for name in newest.get_variable_to_shape_map()}


def assert_same(mine: Path, other: Path, *, apart: str = "") -> None:
    ours, theirs = weights_in(mine), weights_in(other)
    assert ours.keys() == theirs.keys()
    for name in sorted(set(ours) - {apart}):
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, err_msg=name)


@needs_estimators
def test_replicas_and_pipelines_train_as_one_estimator(run: Run, tmp_path: Path, plain: Path) -> None:
    summary = json.loads((plain / "run" / "summary.json").read_text())
    replicated = run("replicated", "replica-estimator", "training.micro_batch_size=2", replicas=4)
    pipelined = run(
        "pipelined", "pipeline-estimator", "training.micro_batch_size=2", "training.gradient_accumulation_count=4"
    )
    assert summary["updates"] == replicated["updates"] == pipelined["updates"] == 4
    for times in (each["times_s"] for each in (summary, replicated, pipelined)):
        assert times["data"] and times["device"] and times["checkpoint"] and not times["reduction"]
    for other in (replicated, pipelined):
        for name, value in summary["metrics"].items():
            assert other["metrics"][name] == pytest.approx(value, abs=1e-5)
    assert_same(plain / "model", tmp_path / "replicated")
    assert_same(plain / "model", tmp_path / "pipelined", apart="global_step")
    shapes = {name: value.shape for name, value in weights_in(plain / "model").items() if "kernel" in name}
    kernels = ("conv1", "conv2", "conv3", "conv4", "fc1", "predictions")
    expected = ((3, 3, 3, 32), (3, 3, 32, 32), (3, 3, 32, 64), (3, 3, 64, 64), (256, 512), (512, 10))
    assert shapes == {f"{name}/kernel": shape for name, shape in zip(kernels, expected)}  # as with Keras
    assert weights_in(tmp_path / "pipelined")["global_step"] == 16  # micro-batches of a replica, as the SDK counts


@needs_estimators
def test_a_second_start_ends_where_one_training_does(run: Run, tmp_path: Path) -> None:
    dropout = "model.dropout=0.25"
    first = run("twice", "estimator", dropout)
    second = run("twice", "estimator", dropout, "training.num_epochs=2")
    whole = run("once", "estimator", dropout, "training.num_epochs=2")
    assert second["updates"] == whole["updates"] == 8 and second["train_s"] > first["train_s"]
    assert second["metrics"] == pytest.approx(whole["metrics"], abs=1e-5)
    assert_same(tmp_path / "twice", tmp_path / "once")

    tested = run("twice", "estimator", dropout, "training.num_epochs=2", "training.training=false")
    assert tested["metrics"] == {name: second["metrics"][name] for name in ("val_loss", "val_accuracy")}
    assert "updates" not in tested

    again = run("twice", "estimator", dropout, "training.num_epochs=2")  # there is nothing left to train
    assert again["metrics"] == second["metrics"]
    with pytest.raises(SettingsError, match="has made 8 updates, and this training is 4 long"):
        run("twice", "estimator", dropout)
    with pytest.raises(SettingsError, match="was trained with seed 0, this job has 1"):
        run("twice", "estimator", dropout, "training.num_epochs=2", "training.seed=1")
    with pytest.raises(SettingsError, match="was trained with optimizer sgd, this job has adam"):
        run("twice", "estimator", dropout, "training.num_epochs=3", "optimizer.name=adam")


@needs_estimators
@pytest.mark.parametrize("is_trained", [True, False])
def test_a_checkpoint_of_somebody_else_is_refused(run: Run, tmp_path: Path, is_trained: bool) -> None:
    (tmp_path / "foreign").mkdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.get_variable("x", initializer=0.0).initializer)
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "foreign" / "model"))
    with pytest.raises(DataError, match="not known to be of this training: model does not tell its step"):
        run("foreign", "estimator", f"training.training={str(is_trained).lower()}")


@needs_estimators
def test_a_stopped_training_has_a_checkpoint_and_continues(run: Run, tmp_path: Path, plain: Path) -> None:
    with pytest.raises(StoppedError, match="after update 2"):
        run("stopped", "estimator", "estimator.batches_per_step=2", stop=True)
    assert weights_in(tmp_path / "stopped")["global_step"] == 2
    run("stopped", "estimator", "estimator.batches_per_step=2")
    assert_same(tmp_path / "stopped", plain / "model")


class Killed(StopRequest):
    """Killed after update 3 of those that it makes."""

    updates = 0

    def agreed(self) -> bool:
        self.updates += 1
        if self.updates == 3:
            raise KeyboardInterrupt
        return False


def logs_of(run: Path) -> List[Any]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["update"], row["loss"]) for row in rows if "loss" in row]


@pytest.fixture(scope="module")
def every_update(tmp_path_factory: pytest.TempPathFactory) -> List[float]:
    """The losses of 8 updates that nothing disturbed."""
    base = tmp_path_factory.mktemp("every")
    texts = ("training.logs_per_epoch=4", "training.num_epochs=2", "training.validation=false")
    runs_in(base)("model", "estimator", *texts, "estimator.batches_per_step=1", where="run")
    return [loss for _, loss in logs_of(base / "run")]


# Of 8 updates, killed after 3: before the first checkpoint, or with one from between two logs.
HOST_EVENTS = {"none": ("2", "1/2"), "one": ("1/2", "2"), "one, logged": ("4", "2")}


@needs_estimators
@pytest.mark.parametrize(
    ("case", "last"),
    [("none", "first"), ("one", "first"), ("one, logged", "second")],
    ids=["none, in place", "one, in place", "one, logged, another run"],
)
def test_a_training_that_was_killed_has_the_history_of_one_that_was_not(
    run: Run, tmp_path: Path, every_update: List[float], case: str, last: str
) -> None:
    logs, saves = HOST_EVENTS[case]
    more = [f"training.logs_per_epoch={logs}", f"training.ckpts_per_epoch={saves}", "training.num_epochs=2"]
    more += ["estimator.batches_per_step=1"]
    with pytest.raises(KeyboardInterrupt):
        run("killed", "estimator", *more, where="first", asked=Killed)
    summary = run("killed", "estimator", *more, where=last)
    period = {"4": 1, "2": 2, "1/2": 8}[logs]
    means = [sum(every_update[made - period : made]) / period for made in range(period, 9, period)]
    found = logs_of(tmp_path / last)
    assert [update for update, _ in found] == list(range(period, 9, period))
    assert [loss for _, loss in found] == pytest.approx(means, abs=1e-5)
    assert summary["updates"] == 8


@needs_estimators
def test_without_a_period_a_checkpoint_is_written_when_it_is_stopped(run: Run, tmp_path: Path) -> None:
    never = ("training.ckpts_per_epoch=0", "training.validation=false", "estimator.batches_per_step=2")
    run("whole", "estimator", *never)
    assert tf.train.latest_checkpoint(str(tmp_path / "whole")) is None
    with pytest.raises(StoppedError, match="after update 2, with a checkpoint"):
        run("stopped", "estimator", *never, stop=True)
    assert weights_in(tmp_path / "stopped")["global_step"] == 2


@needs_estimators
def test_a_device_call_must_fit_between_two_events(run: Run) -> None:
    with pytest.raises(SettingsError) as caught:
        run("odd", "estimator", "estimator.batches_per_step=3")
    assert "--batches-per-step is 3, and the host hears of the training every 4" in caught.value.message
    assert "use --batches-per-step 2" in caught.value.hint or "use --batches-per-step 4" in caught.value.hint


@needs_estimators
def test_what_is_not_there_cannot_be_tested(run: Run) -> None:
    with pytest.raises(DataError, match="there is no checkpoint in"):
        run("empty", "estimator", "training.training=false")


@needs_estimators
def test_batch_statistics_are_refused(run: Run) -> None:
    with pytest.raises(SettingsError, match="has batch statistics"):
        run("resnet", "estimator", "model.name=cifar_resnet8", "model.dropout=null")


@needs_estimators
def test_a_plain_estimator_is_one_replica(run: Run) -> None:
    with pytest.raises(SettingsError, match="trains one replica, and there are 2"):
        run("two", "estimator", replicas=2)


@needs_estimators
def test_what_a_global_batch_makes_of_the_accumulation_is_refused_too(run: Run) -> None:
    with pytest.raises(SettingsError, match="accumulation 4: of the Estimators, only the one of a pipeline"):
        run("accumulates", "replica-estimator", "training.global_batch_size=64", replicas=2)


def test_without_estimators_the_reason_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(tf, "estimator"):
        monkeypatch.setattr(estimator, "tf", SimpleNamespace(__version__="2.21.0"))
    with pytest.raises(NotReadyError, match=r"has no Estimators any more: 2\.15 was the last") as caught:
        run("none", "estimator")
    assert caught.value.exit_code == 4 and "--api keras" in caught.value.hint
