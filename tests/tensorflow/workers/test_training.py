"""Whole trainings of small models in this process: host events, resuming, validation, what is written."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import shutil
import signal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.cosmoflow import CosmoflowSettings
from ipulaunch.configs.errors import DataError, JobError, NotReadyError, SettingsError, StoppedError
from ipulaunch.configs.images import ImageData, ImageModel, ImageSettings
from ipulaunch.configs.job import Job, to_yaml
from ipulaunch.configs.optimization import Optimizer, Schedule
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.sections import Training
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place
from ipulaunch.workers import work
from ipulaunch.workers.backends.cpu import CpuBackend
from ipulaunch.workers.checkpoints import Checkpoint, load
from ipulaunch.workers.collective import Alone
from ipulaunch.workers.evaluation import judged
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.measures import measures_of
from ipulaunch.workers.records import Records
from ipulaunch.workers.state import TrainingState
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
# Its loss goes up and down with the samples of an update, so that the best checkpoint is not the last one.
HARDLY_LEARNS = dataclasses.replace(SETTINGS, optimizer=Optimizer("sgd", 1e-6))
OFTEN: Dict[str, Any] = {"logs_per_epoch": Fraction(2), "ckpts_per_epoch": Fraction(2), "validation": False}


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
    seconds = [row["train_s"] for row in second.rows]
    assert seconds == sorted(seconds) and second.summary["train_s"] == seconds[-1] > first.summary["train_s"]
    assert second.checkpoints == ["update-00000012"]


def test_another_training_is_not_resumed(run: Callable[..., Run]) -> None:
    first = run("first", num_epochs=1, validation=False)
    with pytest.raises(SettingsError, match="was trained with seed 0, this job has 1"):
        run("other-seed", seed=1, resume=str(first.path))
    fewer = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, n_train=34))
    with pytest.raises(SettingsError, match="with samples 35, this job has 34"):
        run("other-samples", fewer, resume=str(first.path))
    adam = dataclasses.replace(SETTINGS, optimizer=Optimizer("adam", 0.05))
    with pytest.raises(SettingsError, match="with optimizer sgd with momentum, this job has adam"):
        run("other-optimizer", adam, resume=str(first.path))
    darker = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, mean=(1.0,)))
    for name, how in (("resumed", {"resume": str(first.path)}), ("evaluated", evaluating(first))):
        with pytest.raises(SettingsError, match="trained with other layers, or with inputs normalised otherwise"):
            run(name, darker, **how)
    on_the_host = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, host_preprocess=True))
    run("on-the-host", on_the_host, **evaluating(first))


def evaluating(found: Run) -> Dict[str, Any]:
    return {"training": False, "checkpoint_input_dir": str(found.path)}


def test_a_checkpoint_that_does_not_tell_its_run_its_optimizer_and_its_time_is_resumed(run: Callable[..., Run]) -> None:
    first = run("first", num_epochs=1, validation=False)
    path = first.path / "checkpoints" / "update-00000004" / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["facts"].pop("run") == str(first.path) and manifest["facts"].pop("optimizer")
    assert manifest["facts"].pop("train_s") == first.summary["train_s"]
    path.write_text(json.dumps(manifest))
    assert run("second", resume=str(first.path), validation=False).checkpoints[0] == "update-00000008"


def warnings_of(found: Run) -> List[str]:
    return [event["message"] for event in found.events if event["event"] == "warning"]


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_is_resumed(run: Callable[..., Run]) -> None:
    first = run("first", num_epochs=2, validation=False)
    newest = first.path / "checkpoints" / "update-00000008"
    (newest / "state.npz").write_bytes(b"damaged")
    second = run("second", resume=str(first.path), validation=False)
    (warning,) = warnings_of(second)
    assert warning.startswith(f"{newest} is not a complete checkpoint: state.npz has the checksum")
    assert warning.endswith("; update-00000004 is taken instead")
    with pytest.raises(DataError, match=f"^{newest} is not a complete checkpoint: state.npz has the checksum"):
        run("named", resume=str(newest))
    (newest / "manifest.json").unlink()
    with pytest.raises(DataError, match=f"^{newest} is not a complete checkpoint: .*manifest.json"):
        run("named", resume=str(newest))


def test_what_an_update_is_padded_with_is_not_measured(run: Callable[..., Run]) -> None:
    """One sample and seven of weight 0 are measured as eight times that sample."""
    model, data = dataclasses.replace(SETTINGS.model, dropout=0.0), dataclasses.replace(SETTINGS.data, n_train=1)
    settings = dataclasses.replace(HARDLY_LEARNS, model=model, data=data)
    padded, repeated = (run(how, settings, remainder=how, validation=False) for how in ("pad", "repeat"))
    for mine, theirs in zip(padded.rows, repeated.rows):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert mine["accuracy"] == theirs["accuracy"]
    assert (padded.summary["samples"], repeated.summary["samples"]) == (3, 24)


def test_a_training_that_is_complete_is_only_validated(run: Callable[..., Run]) -> None:
    first = run("first", num_epochs=2)
    again = run("again", num_epochs=2, resume=str(first.path))
    assert again.summary["metrics"]["val_loss"] == first.summary["metrics"]["val_loss"]
    assert again.checkpoints == []
    assert "all 8 updates of this training were made before" in (again.path / "instance-000/events.jsonl").read_text()
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


class Killed(StopRequest):
    """Killed after update 6."""

    updates = 0

    def agreed(self) -> bool:
        self.updates += 1
        if self.updates == 6:
            raise KeyboardInterrupt
        return False


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["in the run", "elsewhere"])
@pytest.mark.parametrize(("saves", "start"), [(Fraction(1, 3), 0), (Fraction(1), 4)], ids=["none", "one"])
def test_a_run_that_was_killed_tells_of_every_update_once(
    run: Callable[..., Run], tmp_path: Path, saves: Fraction, start: int, is_elsewhere: bool
) -> None:
    elsewhere = str(tmp_path / "elsewhere") if is_elsewhere else None
    more: Dict[str, Any] = {"logs_per_epoch": Fraction(4), "ckpts_per_epoch": saves, "validation": False}
    more["checkpoint_output_dir"] = elsewhere
    with pytest.raises(KeyboardInterrupt):
        run("run", stop=Killed, **more)
    resume = (elsewhere or str(tmp_path / "run")) if start else None  # as ipulaunch resume does it
    again = run("run", resume=resume, **more)
    assert [event["update"] for event in again.events if event["event"] == "resumed"] == ([start] if start else [])
    assert [row["update"] for row in again.rows] == list(range(1, 13))
    with (again.path / "history.csv").open(newline="") as file:
        assert [int(row["update"]) for row in csv.DictReader(file)] == list(range(1, 13))


def test_an_evaluation_that_is_repeated_in_place_tells_of_it_once(run: Callable[..., Run]) -> None:
    evaluate: Dict[str, Any] = {"training": False, "checkpoint_input_dir": str(run("trained", num_epochs=2).path)}
    run("evaluated", **evaluate)
    assert [row["update"] for row in run("evaluated", **evaluate).rows] == [4, 8]


@pytest.mark.parametrize("is_stopped", [False, True], ids=["due", "stopped"])
def test_a_training_whose_loss_is_not_finite_keeps_no_more_checkpoints(
    run: Callable[..., Run], tmp_path: Path, is_stopped: bool
) -> None:
    class Asked(StopRequest):
        updates = 0

        def agreed(self) -> bool:
            self.updates += 1
            return is_stopped and self.updates == 2

    wild = dataclasses.replace(SETTINGS, optimizer=Optimizer("sgd", 1e30), schedule=Schedule())
    saves = Fraction(0 if is_stopped else 4)
    with pytest.raises(JobError, match="the loss is not finite any more after update 2"):
        run("wild", wild, stop=Asked, ckpts_per_epoch=saves, validation=False)
    found = [path.name for path in (tmp_path / "wild").glob("checkpoints/*")]
    assert found == ([] if is_stopped else ["update-00000001"])


def test_weights_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    weights = [tf.Variable([1.0, 2.0]), tf.Variable([float("inf")])]
    state = TrainingState(SimpleNamespace(weights=weights), SimpleNamespace(weights=[]), [])
    with pytest.raises(JobError, match="the weights are not finite any more after update 3"):
        state.save(tmp_path, {"update": 3})
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["in the run", "elsewhere"])
def test_a_run_whose_checkpoints_are_all_damaged_begins_anew(
    is_elsewhere: bool, run: Callable[..., Run], tmp_path: Path
) -> None:
    place = tmp_path / "elsewhere" if is_elsewhere else tmp_path / "run" / "checkpoints"
    more: Dict[str, Any] = {"checkpoint_output_dir": str(place) if is_elsewhere else None}
    whole = run("run", **more)
    expected = load(place / "update-00000012")
    shutil.copytree(place / "update-00000004", place / "update-00000002")  # which is not written again
    for path in place.glob("update-*"):
        (path / "state.npz").write_bytes(b"damaged")
    resume = str(place if is_elsewhere else whole.path)
    with pytest.raises(DataError, match="no complete checkpoint in"):
        run("another", resume=resume, **more)  # it was named, so it must be there
    (whole.path / "attempts" / "1").mkdir(parents=True)  # as ipulaunch resume leaves it
    again = run("run", resume=resume, **more)
    said = [event["message"] for event in again.events if event["event"] == "warning"]
    assert said == [f"none of the checkpoints in {place} is complete: the run starts from the beginning, at update 0"]
    assert [row["update"] for row in again.rows if "checkpoint" not in row] == [4, 8, 12]
    assert [row["update"] for row in again.rows if "checkpoint" in row] == [4, 8, 12]
    assert_same_state(load(place / "update-00000012"), expected)


def test_nothing_to_resume_is_said(run: Callable[..., Run], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no complete checkpoint in"):
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


def test_sets_that_are_short_are_told(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    make = work.make_sources

    def make_short(*arguments: Any, **more: Any) -> Any:
        sources = make(*arguments, **more)
        sources["train"].samples, sources["validation"].samples = 33, 10
        return sources

    monkeypatch.setattr(work, "make_sources", make_short)
    found = run("run", num_epochs=1)
    assert warnings_of(found) == [
        "the training set has 33 samples, and --n-train is 35",
        "the validation set has 10 samples, and --n-valid is 11",
    ]
    (validation,) = (event for event in found.events if event["event"] == "validation")
    assert validation["samples"] == found.summary["validation_samples"] == 10
    assert found.summary["samples"] == 32


def test_an_epoch_can_be_a_number_of_updates(run: Callable[..., Run]) -> None:
    found = run("run", num_epochs=2, weight_updates_per_epoch=6, validation=False)
    assert [(row["update"], row["epoch"]) for row in found.rows] == [(6, 1), (12, 2)]
    passes = run("passes", validation=False)  # the same 12 updates as three passes
    assert_same_state(found.checkpoint(12), passes.checkpoint(12))


@pytest.mark.core
def test_every_checkpoint_is_validated_in_order_and_the_best_is_named(run: Callable[..., Run]) -> None:
    found = run("run")
    validated = [row for row in found.rows if "checkpoint" in row]
    assert [row["checkpoint"] for row in validated] == found.checkpoints
    best = max(validated, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
    assert found.summary["best"] == best
    told = [(event["done"], event["total"]) for event in found.events if event["event"] == "validating"]
    assert told.count((6, 6)) == 3  # a pass longer than --stall-timeout does not look like a hang
    assert found.summary["metrics"]["val_loss"] == validated[-1]["val_loss"]


def test_only_the_newest_and_the_best_are_kept(run: Callable[..., Run]) -> None:
    losses = {row["update"]: row["loss"] for row in run("all", HARDLY_LEARNS, **OFTEN).rows}
    best = min(losses, key=losses.__getitem__)
    assert best < 12, "nothing but the newest would be kept"
    expected = [f"update-{update:08}" for update in (best, 12)]
    assert run("run", HARDLY_LEARNS, keep_checkpoints=1, **OFTEN).checkpoints == expected


RARE_LOGS: Dict[str, Any] = {"logs_per_epoch": Fraction(1, 3), "ckpts_per_epoch": Fraction(4), "validation": False}


def test_checkpoints_between_two_logs_are_judged_by_the_mean_since_the_last(run: Callable[..., Run]) -> None:
    losses = [row["loss"] for row in run("all", HARDLY_LEARNS, **{**RARE_LOGS, "logs_per_epoch": Fraction(4)}).rows]
    means = [sum(losses[:made]) / made for made in range(1, 13)]
    best = means.index(min(means)) + 1
    assert best < 12, "nothing but the newest would be kept"
    expected = [f"update-{update:08}" for update in (best, 12)]
    assert run("run", HARDLY_LEARNS, keep_checkpoints=1, **RARE_LOGS).checkpoints == expected


@pytest.mark.parametrize("frequencies", [OFTEN, RARE_LOGS], ids=["logs as often", "rare logs"])
def test_the_best_is_kept_by_a_run_that_continues_in_place(
    run: Callable[..., Run], frequencies: Dict[str, Any]
) -> None:
    kept: Dict[str, Any] = {"keep_checkpoints": 1, **frequencies}
    whole = run("whole", HARDLY_LEARNS, **kept)
    assert len(whole.checkpoints) == 2

    class StopAfterEight(StopRequest):
        calls = 0

        def agreed(self) -> bool:
            self.calls += 1
            return self.calls == 8

    with pytest.raises(StoppedError):
        run("stopped", HARDLY_LEARNS, stop=StopAfterEight, **kept)
    path = whole.path.with_name("stopped")
    assert run("stopped", HARDLY_LEARNS, resume=str(path), **kept).checkpoints == whole.checkpoints


def test_checkpoints_can_go_elsewhere(run: Callable[..., Run], tmp_path: Path) -> None:
    found = run("run", checkpoint_output_dir=str(tmp_path / "elsewhere"), num_epochs=1)
    assert found.checkpoints == []
    assert (tmp_path / "elsewhere" / "update-00000004" / "manifest.json").is_file()
    assert found.summary["checkpoint"] == str(tmp_path / "elsewhere" / "update-00000004")


def test_checkpoints_of_another_run_are_not_written_over(run: Callable[..., Run], tmp_path: Path) -> None:
    more: Dict[str, Any] = {"checkpoint_output_dir": str(tmp_path / "elsewhere"), "validation": False}
    first = run("first", num_epochs=1, **more)
    with pytest.raises(SettingsError, match=f"elsewhere holds checkpoints of another run, {first.path}") as caught:
        run("second", **more)
    kept = tmp_path / "second" / "attempts" / "1"
    kept.mkdir(parents=True)
    (tmp_path / "second" / "instance-000").rename(kept / "instance-000")
    with pytest.raises(SettingsError, match="checkpoints of another run"):
        run("second", resume=str(tmp_path / "elsewhere"), **more)  # as ipulaunch resume does it
    assert f"--resume {tmp_path / 'elsewhere'}" in caught.value.hint
    with pytest.raises(SettingsError, match="checkpoints of another run"):
        run("third", resume=str(run("apart", num_epochs=1, validation=False).path), **more)
    run("first", num_epochs=1, **more)  # which is its own
    checkpoint = tmp_path / "elsewhere" / "update-00000004"
    for name, place in (("continued", checkpoint.parent), ("from-one", checkpoint)):
        assert run(name, resume=str(place), **more).summary["updates"] == 12


def test_of_two_runs_that_begin_to_write_to_one_place_the_second_is_refused(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    more: Dict[str, Any] = {"checkpoint_output_dir": str(tmp_path / "elsewhere"), "validation": False}

    class OtherBegins(StopRequest):
        """Another run writes a checkpoint before the first of this one."""

        has_begun = False

        def agreed(self) -> bool:
            if not self.has_begun:
                self.has_begun = True
                run("other", num_epochs=1, **more)
            return False

    with pytest.raises(SettingsError, match=f"another run, {tmp_path / 'other'}, has begun to write checkpoints to"):
        run("run", stop=OtherBegins, **more)
    assert json.loads((tmp_path / "elsewhere" / "update-00000004" / "manifest.json").read_text())["facts"][
        "run"
    ] == str(tmp_path / "other")


@pytest.mark.parametrize("place", ["/proc/none", "file/inside", "file"])
def test_a_place_that_takes_no_checkpoints_is_refused_at_once(
    run: Callable[..., Run], tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotReadyError, match=f"checkpoints cannot be written to .*{place}: ") as caught:
        run("run", checkpoint_output_dir=str(tmp_path / place))
    assert "--checkpoint-output-dir" in caught.value.hint


def test_a_run_whose_checkpoints_are_elsewhere_is_resumed_with_its_curve(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    elsewhere: Dict[str, Any] = {"checkpoint_output_dir": str(tmp_path / "elsewhere"), "validation": False}
    first = run("first", num_epochs=2, **elsewhere)
    settings = dataclasses.replace(SETTINGS, training=dataclasses.replace(SETTINGS.training, **elsewhere))
    (first.path / "job.yaml").write_text(to_yaml(Job("mnist", "cpu", settings)))
    second = run("second", resume=str(first.path), validation=False)
    assert [row["update"] for row in second.rows] == [4, 8, 12]
    evaluated = run("evaluated", training=False, checkpoint_input_dir=str(first.path))
    assert [row["update"] for row in evaluated.rows] == [4, 8]


def test_checkpoints_of_another_run_can_be_evaluated(run: Callable[..., Run]) -> None:
    trained = run("trained")
    found = run("evaluated", training=False, checkpoint_input_dir=str(trained.path))
    assert "updates" not in found.summary
    expected = [(row["checkpoint"], row["val_loss"]) for row in trained.rows if "checkpoint" in row]
    assert [(row["checkpoint"], row["val_loss"]) for row in found.rows] == expected


def test_a_damaged_checkpoint_is_left_out_of_the_evaluation(run: Callable[..., Run]) -> None:
    trained = run("trained")
    evaluate: Dict[str, Any] = {"training": False, "checkpoint_input_dir": str(trained.path)}
    paths = sorted((trained.path / "checkpoints").iterdir())
    (paths[1] / "state.npz").write_bytes(b"damaged")
    found = run("evaluated", **evaluate)
    assert [row["update"] for row in found.rows] == [4, 12]
    assert found.summary["best"] in found.rows
    (warning,) = warnings_of(found)
    assert warning.startswith(f"{paths[1]} is not a complete checkpoint: ") and warning.endswith(
        "; it is not evaluated"
    )
    for path in paths:
        (path / "state.npz").write_bytes(b"damaged")
    with pytest.raises(DataError, match=f"none of the checkpoints in {paths[0].parent} is complete"):
        run("nothing", **evaluate)


def test_random_weights_are_said_to_be_random(run: Callable[..., Run]) -> None:
    found = run("run", training=False)
    (warning,) = (event["message"] for event in found.events if event["event"] == "warning")
    assert warning == "there is no checkpoint: random weights are evaluated"
    assert 0 <= found.summary["metrics"]["val_accuracy"] <= 1


def test_the_first_checkpoint_that_reaches_a_target_is_named(run: Callable[..., Run]) -> None:
    found = run("run", target_accuracy=0.01)
    assert found.summary["judged_by"] == "val_accuracy"
    assert found.summary["target"]["reached_by"]["checkpoint"] == found.checkpoints[0]
    evaluate: Dict[str, Any] = {"training": False, "target_accuracy": 1.0}
    assert run("never", **evaluate).summary["target"] == {"value": 1.0, "reached_by": None}


def test_of_errors_the_lower_one_is_better() -> None:
    rows = [
        {"update": update, "val_loss": error, "val_mae": error} for update, error in ((4, 0.3), (8, 0.1), (12, 0.2))
    ]
    found = judged(rows, measures_of(CosmoflowSettings())[-1], 0.25)
    assert (found["judged_by"], found["best"], found["target"]["reached_by"]) == ("val_mae", rows[1], rows[1])
    assert judged(rows, measures_of(CosmoflowSettings())[-1], 0.05)["target"]["reached_by"] is None


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
    last = [0.025 * (1 + math.cos(math.pi * update / 12)) for update in (3, 7, 11)]  # counted from 0
    assert rates == pytest.approx(last, abs=1e-6)


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
