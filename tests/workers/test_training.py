"""Whole trainings of small models in this process: host events, resuming, validation, what is written."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
from fractions import Fraction
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, SettingsError, StoppedError
from ipulaunch.configs.images import ImageData, ImageModel, ImageSettings
from ipulaunch.configs.job import Job
from ipulaunch.configs.optimization import Optimizer, Schedule
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.sections import Training
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place
from ipulaunch.workers.backends.cpu import CpuBackend
from ipulaunch.workers.checkpoints import Checkpoint, load
from ipulaunch.workers.collective import Alone
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.records import Records
from ipulaunch.workers.stopping import StopRequest
from ipulaunch.workers.work import carry_out

# 4 updates an epoch of 2 x 2 x 2 samples, and 3 samples left out; all that has state: momentum, dropout, a schedule.
SETTINGS = ImageSettings(
    data=ImageData(synthetic_data="cpu", n_train=35, n_valid=11, side=10, channels=1, classes=3),
    model=ImageModel("mnist_cnn", dropout=0.3),
    optimizer=Optimizer("sgd", 0.05, momentum=0.9),
    schedule=Schedule("cosine"),
    training=Training(num_epochs=3, micro_batch_size=2, gradient_accumulation_count=2),
)


class Run(NamedTuple):
    """What a run left."""

    path: Path
    summary: Dict[str, Any]

    @property
    def rows(self) -> List[Dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "metrics.jsonl").read_text().splitlines()]

    @property
    def events(self) -> List[Dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "instance-000" / "events.jsonl").read_text().splitlines()]

    @property
    def checkpoints(self) -> List[str]:
        return sorted(path.name for path in (self.path / "checkpoints").glob("*"))

    def checkpoint(self, update: int) -> Checkpoint:
        return load(self.path / "checkpoints" / f"update-{update:08}")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    """Carries out a run with other training settings."""

    def run(name: str, settings: ImageSettings = SETTINGS, stop: Any = StopRequest, **training: Any) -> Run:
        settings = dataclasses.replace(settings, training=dataclasses.replace(settings.training, **training))
        batch, place = Batch(2, 2, 2), Place(0, 1, 0, 1, 0, 2, 2, 1)
        directory = RunDirectory(tmp_path / name)
        backend = CpuBackend(settings, batch, place, Alone())
        records = Records(directory, 0)
        instance = Instance(
            Job("mnist", "cpu", settings), batch, place, backend, directory, records, 1, stop(directory, place, Alone())
        )
        try:
            summary = carry_out(instance)
        except BaseException as error:
            records.error(error)
            raise
        records.done(summary)
        return Run(directory.path, summary)

    return run


def assert_same_state(found: Checkpoint, expected: Checkpoint) -> None:
    assert found.update == expected.update
    assert len(found.weights) == len(expected.weights) and len(found.optimizer) == len(expected.optimizer)
    for mine, theirs in zip([*found.weights, *found.optimizer], [*expected.weights, *expected.optimizer]):
        assert np.array_equal(mine, theirs)


@pytest.mark.core
def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(run: Callable[..., Run]) -> None:
    often: Dict[str, Any] = {"ckpts_per_epoch": Fraction(4), "validation": False}
    whole = run("whole", **often)
    for update in (1, 4, 7):
        resumed = run(f"from-{update}", resume=str(whole.path / "checkpoints" / f"update-{update:08}"), **often)
        assert_same_state(resumed.checkpoint(12), whole.checkpoint(12))
        timeless = [
            [{name: row[name] for name in row if name not in ("train_s", "samples_per_s")} for row in each.rows]
            for each in (resumed, whole)
        ]
        assert timeless[0] == timeless[1]


def test_the_newest_checkpoint_is_resumed_and_only_the_rest_is_trained(run: Callable[..., Run]) -> None:
    first = run("first", num_epochs=2, validation=False)
    assert first.checkpoints == ["update-00000004", "update-00000008"]
    second = run("second", resume=str(first.path), validation=False)
    (training,) = (event for event in second.events if event["event"] == "training")
    assert training["first_update"] == 8 and second.summary["updates"] == 12
    assert second.checkpoints == ["update-00000012"]


def test_another_training_is_not_resumed(run: Callable[..., Run]) -> None:
    first = run("first", num_epochs=1, validation=False)
    with pytest.raises(SettingsError, match="was trained with seed 0, this job has 1"):
        run("other-seed", seed=1, resume=str(first.path))
    fewer = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, n_train=34))
    with pytest.raises(SettingsError, match="with samples 35, this job has 34"):
        run("other-samples", fewer, resume=str(first.path))


def test_a_training_that_is_complete_is_only_validated(run: Callable[..., Run]) -> None:
    first = run("first", num_epochs=2)
    again = run("again", num_epochs=2, resume=str(first.path))
    assert again.summary["metrics"]["val_loss"] == first.summary["metrics"]["val_loss"]
    assert again.checkpoints == []
    with pytest.raises(SettingsError, match="has made 8 updates, and this training is 4 long"):
        run("shorter", num_epochs=1, resume=str(first.path))


def test_a_run_that_is_asked_to_stop_leaves_a_checkpoint_and_continues_in_place(run: Callable[..., Run]) -> None:
    whole = run("whole", ckpts_per_epoch=Fraction(1))

    class Asked(StopRequest):
        """Asked for while update 6 is made."""

        updates = 0

        def agreed(self) -> bool:
            self.updates += 1
            return self.updates == 6

    with pytest.raises(StoppedError, match="after update 6, with a checkpoint"):
        run("run", stop=Asked)
    path = whole.path.with_name("run")
    assert sorted(each.name for each in (path / "checkpoints").iterdir()) == ["update-00000004", "update-00000006"]
    continued = run("run", resume=str(path))
    assert_same_state(continued.checkpoint(12), whole.checkpoint(12))
    validated = [row["checkpoint"] for row in continued.rows if "checkpoint" in row]
    assert validated == [f"update-{update:08}" for update in (4, 6, 8, 12)]
    logs = [{name: row[name] for name in ("update", "loss")} for row in continued.rows if "loss" in row]
    assert logs == [{name: row[name] for name in ("update", "loss")} for row in whole.rows if "loss" in row]


@pytest.mark.parametrize("how", ["file", "signal"])
def test_a_request_to_stop_is_a_file_or_a_signal(tmp_path: Path, how: str) -> None:
    request = StopRequest(RunDirectory(tmp_path), Place(0, 1, 0, 1, 0, 1, 1, 1), Alone())
    assert not request.agreed()
    if how == "file":
        (tmp_path / "stop").touch()
    else:
        before = signal.getsignal(signal.SIGUSR1)
        request.listen(signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, before)
    request.last_look = -1.0
    assert request.agreed()


def test_nothing_to_resume_is_said(run: Callable[..., Run], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no whole checkpoint in"):
        run("first", resume=str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("logs", "saves", "logged", "saved"),
    [
        (Fraction(1), Fraction(1), [4, 8, 12], [4, 8, 12]),
        (Fraction(2), Fraction(1, 3), [2, 4, 6, 8, 10, 12], [12]),
        (Fraction(1, 3), Fraction(4), [12], list(range(1, 13))),
        (Fraction(0), Fraction(0), [12], []),
    ],
    ids=["once", "logs twice", "checkpoints often", "never"],
)
def test_logs_and_checkpoints_come_as_often_as_asked(
    run: Callable[..., Run], logs: Fraction, saves: Fraction, logged: List[int], saved: List[int]
) -> None:
    found = run("run", logs_per_epoch=logs, ckpts_per_epoch=saves, validation=False)
    assert [row["update"] for row in found.rows] == logged
    assert found.checkpoints == [f"update-{update:08}" for update in saved]


def test_frequencies_that_do_not_divide_are_told(run: Callable[..., Run]) -> None:
    found = run("run", num_epochs=1, logs_per_epoch=Fraction(3), validation=False)
    (warning,) = (event["message"] for event in found.events if event["event"] == "warning")
    assert "3 logs per epoch do not divide its 4 updates" in warning


def test_an_epoch_can_be_a_number_of_updates(run: Callable[..., Run]) -> None:
    found = run("run", num_epochs=2, weight_updates_per_epoch=6, validation=False)
    assert [(row["update"], row["epoch"]) for row in found.rows] == [(6, 1), (12, 2)]
    passes = run("passes", validation=False)  # the same 12 updates as three passes
    for mine, theirs in zip(found.checkpoint(12).weights, passes.checkpoint(12).weights):
        assert mine.shape == theirs.shape


@pytest.mark.core
def test_every_checkpoint_is_validated_in_order_and_the_best_is_named(run: Callable[..., Run]) -> None:
    found = run("run")
    validated = [row for row in found.rows if "checkpoint" in row]
    assert [row["checkpoint"] for row in validated] == found.checkpoints
    best = max(validated, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
    assert found.summary["best"] == best
    assert found.summary["metrics"]["val_loss"] == validated[-1]["val_loss"]


def test_only_the_newest_and_the_best_are_kept(run: Callable[..., Run]) -> None:
    found = run("run", ckpts_per_epoch=Fraction(2), keep_checkpoints=2, validation=False)
    assert set(found.checkpoints) >= {"update-00000010", "update-00000012"}
    assert len(found.checkpoints) <= 3


def test_checkpoints_can_go_elsewhere(run: Callable[..., Run], tmp_path: Path) -> None:
    found = run("run", checkpoint_output_dir=str(tmp_path / "elsewhere"), num_epochs=1)
    assert found.checkpoints == []
    assert (tmp_path / "elsewhere" / "update-00000004" / "manifest.json").is_file()
    assert found.summary["checkpoint"] == str(tmp_path / "elsewhere" / "update-00000004")


def test_checkpoints_of_another_run_can_be_evaluated(run: Callable[..., Run]) -> None:
    trained = run("trained")
    found = run("evaluated", training=False, checkpoint_input_dir=str(trained.path))
    assert "updates" not in found.summary
    expected = [(row["checkpoint"], row["val_loss"]) for row in trained.rows if "checkpoint" in row]
    assert [(row["checkpoint"], row["val_loss"]) for row in found.rows] == expected


def test_random_weights_are_said_to_be_random(run: Callable[..., Run]) -> None:
    found = run("run", training=False)
    (warning,) = (event["message"] for event in found.events if event["event"] == "warning")
    assert warning == "there is no checkpoint: random weights are evaluated"
    assert 0 <= found.summary["metrics"]["val_accuracy"] <= 1


def test_the_first_checkpoint_that_reaches_a_target_is_named(run: Callable[..., Run]) -> None:
    found = run("run", target_accuracy=0.01)
    assert found.summary["target"]["reached_by"]["checkpoint"] == found.checkpoints[0]
    evaluate: Dict[str, Any] = {"training": False, "target_accuracy": 1.0}
    assert run("never", **evaluate).summary["target"] == {"value": 1.0, "reached_by": None}


def test_validation_has_a_micro_batch_of_its_own(run: Callable[..., Run]) -> None:
    trained = run("trained", num_epochs=1)
    evaluate: Dict[str, Any] = {"training": False, "checkpoint_input_dir": str(trained.path)}
    found = run("evaluated", validation_micro_batch_size=5, **evaluate)
    assert found.summary["metrics"]["val_loss"] == pytest.approx(trained.summary["metrics"]["val_loss"], rel=1e-6)


def test_metrics_are_written_in_three_forms(run: Callable[..., Run]) -> None:
    found = run("run", num_epochs=2)
    with (found.path / "history.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["update"] for row in table] == ["4", "8"]
    assert float(table[0]["loss"]) == found.rows[0]["loss"]
    assert float(table[1]["val_accuracy"]) == found.rows[-1]["val_accuracy"]
    assert table[1]["checkpoint"] == "update-00000008"
    (events,) = (found.path / "tensorboard").glob("events.out.tfevents.*")
    tags = {
        value.tag
        for record in tf.data.TFRecordDataset(str(events))
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value
    }
    assert tags == {"loss", "accuracy", "learning_rate", "samples_per_s", "train_s", "val_loss", "val_accuracy"}


def test_the_learning_rate_follows_its_schedule(run: Callable[..., Run]) -> None:
    rates = [row["learning_rate"] for row in run("run", validation=False).rows]
    assert rates == pytest.approx([0.0375, 0.0125, 0.0], abs=1e-6)


@pytest.mark.parametrize("kind", ["cpu", "ipu"])
def test_made_up_samples_come_from_the_host_or_the_step(run: Callable[..., Run], kind: str) -> None:
    settings = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, synthetic_data=kind))
    found = run("run", settings, num_epochs=1)
    assert found.summary["samples"] == 32 and found.summary["metrics"]["val_loss"] > 0


def test_what_the_host_normalises_is_what_the_device_would(run: Callable[..., Run]) -> None:
    on_host = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, host_preprocess=True))
    as_floats = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, eight_bit_transfer=False))
    expected = run("device", num_epochs=1).checkpoint(4)
    for name, settings in (("host", on_host), ("floats", as_floats)):
        for mine, theirs in zip(run(name, settings, num_epochs=1).checkpoint(4).weights, expected.weights):
            np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_a_missing_set_says_what_is_missing(run: Callable[..., Run], tmp_path: Path) -> None:
    real = dataclasses.replace(SETTINGS.data, synthetic_data=None)
    with pytest.raises(DataError, match="needs --dataset-path, or --synthetic-data cpu"):
        run("none", dataclasses.replace(SETTINGS, data=real))
    with pytest.raises(DataError, match="there is no MNIST in"):
        run("empty", dataclasses.replace(SETTINGS, data=dataclasses.replace(real, dataset_path=str(tmp_path))))
