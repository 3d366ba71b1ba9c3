"""Whole trainings of a small model in this process: host events, resuming, validation, what is written."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import re
import shutil
import signal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from fixtures.plans import plan_of

from ipulaunch.configs.errors import DataError, JobError, NotReadyError, SettingsError, StoppedError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.configs.settings.cosmoflow import CosmoflowSettings
from ipulaunch.configs.settings.images import ImageData, ImageModel, ImageSettings
from ipulaunch.configs.settings.optimization import Optimizer, Schedule
from ipulaunch.configs.settings.sections import Training
from ipulaunch.topology import Batch
from ipulaunch.workers import run as run_module
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest
from ipulaunch.workers.models.measures import measures_of
from ipulaunch.workers.run import run_instance
from ipulaunch.workers.state.checkpoints import Checkpoint, load
from ipulaunch.workers.state.training_state import TrainingState
from ipulaunch.workers.validate import judged

pytestmark = pytest.mark.usefixtures("one_dense_layer")

# 4 updates an epoch of 2 x 2 x 2 samples, and 3 samples left out; all that has state: momentum, dropout, a schedule.
SETTINGS = ImageSettings(
    data=ImageData(synthetic_data="cpu", n_train=35, n_valid=11, side=10, channels=1, classes=3),
    model=ImageModel("mnist_cnn", dropout=0.3),
    optimizer=Optimizer("sgd", 0.05, momentum=0.9),
    schedule=Schedule("cosine"),
    training=Training(num_epochs=3, micro_batch_size=2, gradient_accumulation_count=2),
)
# Its loss goes up and down with the samples of an update, so that the best checkpoint is not the last one; and by far
# more than machines round apart, so that all agree on the best.
HARDLY_LEARNS = dataclasses.replace(SETTINGS, optimizer=Optimizer("sgd", 1e-6))
OFTEN: Dict[str, Any] = {"logs_per_epoch": Fraction(2), "ckpts_per_epoch": Fraction(2), "validation": False}
RARE_LOGS: Dict[str, Any] = {"logs_per_epoch": Fraction(1, 3), "ckpts_per_epoch": Fraction(4), "validation": False}
MANY_CHECKPOINTS: Dict[str, Any] = {"ckpts_per_epoch": Fraction(4), "validation": False}


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


def runs_in(base: Path) -> Callable[..., Run]:
    """Carries out a run with other training settings."""

    def run(name: str, settings: ImageSettings = SETTINGS, stop: Any = StopRequest, **training: Any) -> Run:
        settings = dataclasses.replace(settings, training=dataclasses.replace(settings.training, **training))
        plan = plan_of(Batch(2, 2, 2))
        directory = RunDirectory(base / name)
        backend = CpuBackend(settings, plan, 0, Alone())
        records = Records(directory, 0)
        instance = Instance(
            Job("mnist", "cpu", settings), plan, 0, backend, directory, records, 1, stop(directory, 0, Alone())
        )
        try:
            summary = run_instance(instance)
        except BaseException as error:
            records.error(error)
            raise
        records.done(summary)
        return Run(directory.path, summary)

    return run


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Run]:
    return runs_in(tmp_path)


# Runs that nothing disturbed. Tests look at them; those that damage one take a copy.


@pytest.fixture(scope="module")
def whole(one_dense_layer: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Has a checkpoint after every update, and a log after every fourth."""
    return runs_in(tmp_path_factory.mktemp("undisturbed"))("whole", **MANY_CHECKPOINTS)


@pytest.fixture(scope="module")
def validated(one_dense_layer: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Has a checkpoint after each of its three epochs."""
    return runs_in(tmp_path_factory.mktemp("undisturbed"))("validated")


@pytest.fixture
def copied(validated: Run, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(str(validated.path), str(tmp_path / "copied"))), validated.summary)


@pytest.fixture(scope="module")
def losses(one_dense_layer: None, tmp_path_factory: pytest.TempPathFactory) -> List[float]:
    """Of every update of a training that hardly learns."""
    run = runs_in(tmp_path_factory.mktemp("undisturbed"))
    found = run("losses", HARDLY_LEARNS, logs_per_epoch=Fraction(4), ckpts_per_epoch=Fraction(0), validation=False)
    return [row["loss"] for row in found.rows]


def assert_same_state(found: Checkpoint, expected: Checkpoint) -> None:
    assert found.update == expected.update
    assert len(found.weights) == len(expected.weights) and len(found.optimizer) == len(expected.optimizer)
    for mine, theirs in zip([*found.weights, *found.optimizer], [*expected.weights, *expected.optimizer]):
        assert np.array_equal(mine, theirs)


@pytest.mark.core
@pytest.mark.parametrize("update", [4, 7], ids=["at a log", "between two logs"])
def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(
    run: Callable[..., Run], whole: Run, update: int
) -> None:
    resumed = run("resumed", resume=str(whole.path / "checkpoints" / f"update-{update:08}"), **MANY_CHECKPOINTS)
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


def test_another_training_is_not_resumed(run: Callable[..., Run], validated: Run) -> None:
    first = validated
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


def test_a_checkpoint_that_does_not_tell_its_run_its_optimizer_and_its_time_is_resumed(
    run: Callable[..., Run], copied: Run, validated: Run
) -> None:
    shutil.rmtree(copied.path / "checkpoints" / "update-00000012")
    path = copied.path / "checkpoints" / "update-00000008" / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["facts"].pop("run") == str(validated.path) and manifest["facts"].pop("optimizer")
    assert 0 < manifest["facts"].pop("train_s") < validated.summary["train_s"]
    path.write_text(json.dumps(manifest))
    assert run("second", resume=str(copied.path), validation=False).checkpoints == ["update-00000012"]


def warnings_of(found: Run) -> List[str]:
    return [event["message"] for event in found.events if event["event"] == "warning"]


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_is_resumed(run: Callable[..., Run], copied: Run) -> None:
    newest = copied.path / "checkpoints" / "update-00000012"
    (newest / "state.npz").write_bytes(b"damaged")
    second = run("second", resume=str(copied.path), validation=False)
    (warning,) = warnings_of(second)
    assert warning.startswith(f"{newest} is not a complete checkpoint: state.npz has the checksum")
    assert warning.endswith("; update-00000008 is taken instead")
    told = re.escape(f"{newest} is not a complete checkpoint: ")
    with pytest.raises(DataError, match=f"^{told}state.npz has the checksum"):
        run("named", resume=str(newest))
    (newest / "manifest.json").unlink()
    with pytest.raises(DataError, match=f"^{told}.*manifest.json"):
        run("named", resume=str(newest))


def test_what_an_update_is_padded_with_is_not_measured(run: Callable[..., Run]) -> None:
    """One sample and seven of weight 0 are measured as eight times that sample."""
    model, data = dataclasses.replace(SETTINGS.model, dropout=0.0), dataclasses.replace(SETTINGS.data, n_train=1)
    # Nothing is to be learnt from it, since eight times as much would be in the second run.
    settings = dataclasses.replace(SETTINGS, model=model, data=data, optimizer=Optimizer("sgd", 1e-12))
    padded, repeated = (run(how, settings, remainder=how, validation=False) for how in ("pad", "repeat"))
    for mine, theirs in zip(padded.rows, repeated.rows):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert mine["accuracy"] == theirs["accuracy"]
    assert (padded.summary["samples"], repeated.summary["samples"]) == (3, 24)


def test_a_training_that_is_complete_is_only_validated(run: Callable[..., Run], validated: Run) -> None:
    again = run("again", resume=str(validated.path))
    assert again.summary["metrics"]["val_loss"] == validated.summary["metrics"]["val_loss"]
    assert again.checkpoints == []
    assert any("all 12 updates of this training were made before" in message for message in warnings_of(again))
    with pytest.raises(SettingsError, match="has made 12 updates, and this training is 4 long"):
        run("shorter", num_epochs=1, resume=str(validated.path))


def test_a_run_that_is_asked_to_stop_leaves_a_checkpoint_and_continues_in_place(
    run: Callable[..., Run], validated: Run, tmp_path: Path
) -> None:
    class Asked(StopRequest):
        """Asked for while update 6 is made."""

        updates = 0

        def agreed(self) -> bool:
            self.updates += 1
            return self.updates == 6

    with pytest.raises(StoppedError, match="after update 6, with a checkpoint"):
        run("run", stop=Asked)
    path = tmp_path / "run"
    assert sorted(each.name for each in (path / "checkpoints").iterdir()) == ["update-00000004", "update-00000006"]
    continued = run("run", resume=str(path))
    assert_same_state(continued.checkpoint(12), validated.checkpoint(12))
    told = [row["checkpoint"] for row in continued.rows if "checkpoint" in row]
    assert told == [f"update-{update:08}" for update in (4, 6, 8, 12)]
    logs = [{name: row[name] for name in ("update", "loss")} for row in continued.rows if "loss" in row]
    assert logs == [{name: row[name] for name in ("update", "loss")} for row in validated.rows if "loss" in row]


class Killed(StopRequest):
    """Killed after update 6."""

    updates = 0

    def agreed(self) -> bool:
        self.updates += 1
        if self.updates == 6:
            raise KeyboardInterrupt
        return False


@pytest.mark.parametrize(
    ("saves", "start", "is_elsewhere"),
    [(Fraction(1, 3), 0, False), (Fraction(1), 4, False), (Fraction(1), 4, True)],
    ids=["none", "one in the run", "one elsewhere"],
)
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


def test_a_training_that_goes_on_elsewhere_keeps_what_was_validated(run: Callable[..., Run], validated: Run) -> None:
    longer = run("longer", resume=str(validated.path), num_epochs=4)
    in_both = [row for row in longer.rows if "val_loss" in row]
    assert [row["update"] for row in in_both] == [4, 8, 12, 16]
    assert in_both[:3] == [row for row in validated.rows if "val_loss" in row]
    with (longer.path / "history.csv").open(newline="") as file:
        assert all(row["val_loss"] for row in csv.DictReader(file))


def test_a_training_that_goes_on_in_place_validates_its_checkpoints_once(run: Callable[..., Run], copied: Run) -> None:
    longer = run("copied", resume=str(copied.path), num_epochs=4)
    assert [row["update"] for row in longer.rows if "val_loss" in row] == [4, 8, 12, 16]


def test_an_evaluation_that_is_repeated_in_place_tells_of_it_once(run: Callable[..., Run], validated: Run) -> None:
    run("evaluated", **evaluating(validated))
    assert [row["update"] for row in run("evaluated", **evaluating(validated)).rows] == [4, 8, 12]


# From its second update on the rate has no bounds: all weights are lost in that update, and the loss in the next one,
# however a processor rounds, and whatever it makes of the larger of 0 and no number.
WILD = Schedule("stepped", boundaries=(0.25,), factors=(math.inf,))


@pytest.mark.parametrize(
    ("saves", "is_stopped", "told", "kept"),
    [
        (4, False, "the weights are not finite any more after update 2", ["update-00000001"]),
        (0, True, "the weights are not finite any more after update 2", []),
        (0, False, "the loss is not finite any more after update 3", []),
    ],
    ids=["due", "stopped", "not due"],
)
def test_a_training_that_is_not_finite_any_more_ends_and_keeps_no_more_checkpoints(
    run: Callable[..., Run], tmp_path: Path, saves: int, is_stopped: bool, told: str, kept: List[str]
) -> None:
    class Asked(StopRequest):
        updates = 0

        def agreed(self) -> bool:
            self.updates += 1
            return is_stopped and self.updates == 2

    wild = dataclasses.replace(SETTINGS, schedule=WILD)
    with pytest.raises(JobError, match=told) as caught:
        run("wild", wild, stop=Asked, ckpts_per_epoch=Fraction(saves), validation=False)
    assert "lower the learning rate" in caught.value.hint
    assert [path.name for path in (tmp_path / "wild").glob("checkpoints/*")] == kept


def test_weights_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    weights = [tf.Variable([1.0, 2.0]), tf.Variable([float("inf")])]
    state = TrainingState(SimpleNamespace(weights=weights), SimpleNamespace(weights=[]), [])
    with pytest.raises(JobError, match="the weights are not finite any more after update 3"):
        state.save(tmp_path, {"update": 3})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["file", "signal"])
def test_a_request_to_stop_is_a_file_or_a_signal(tmp_path: Path, how: str) -> None:
    request = StopRequest(RunDirectory(tmp_path), 0, Alone())
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
        (Fraction(2), Fraction(1, 3), [2, 4, 6, 8, 10, 12], [12]),
        (Fraction(1, 3), Fraction(4), [12], list(range(1, 13))),
        (Fraction(0), Fraction(0), [12], []),
    ],
    ids=["logs twice", "checkpoints often", "never"],
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
    make = run_module.make_sources

    def make_short(*arguments: Any, **more: Any) -> Any:
        sources = make(*arguments, **more)
        sources["train"].samples, sources["validation"].samples = 33, 10
        return sources

    monkeypatch.setattr(run_module, "make_sources", make_short)
    found = run("run", num_epochs=1)
    assert warnings_of(found) == [
        "the training set has 33 samples, and --n-train is 35",
        "the validation set has 10 samples, and --n-valid is 11",
    ]
    (validation,) = (event for event in found.events if event["event"] == "validation")
    assert validation["samples"] == found.summary["validation_samples"] == 10
    assert found.summary["samples"] == 32


def test_an_epoch_can_be_a_number_of_updates(run: Callable[..., Run], whole: Run) -> None:
    found = run("run", num_epochs=2, weight_updates_per_epoch=6, validation=False)
    assert [(row["update"], row["epoch"]) for row in found.rows] == [(6, 1), (12, 2)]
    assert_same_state(found.checkpoint(12), whole.checkpoint(12))  # the same 12 updates as three passes


@pytest.mark.core
def test_every_checkpoint_is_validated_in_order_and_the_best_is_named(validated: Run) -> None:
    assert validated.checkpoints == ["update-00000004", "update-00000008", "update-00000012"]
    rows = [row for row in validated.rows if "checkpoint" in row]
    assert [row["checkpoint"] for row in rows] == validated.checkpoints
    best = max(rows, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
    assert validated.summary["best"] == best
    told = [(event["done"], event["total"]) for event in validated.events if event["event"] == "validating"]
    assert told.count((6, 6)) == 3  # a pass longer than --stall-timeout does not look like a hang
    assert validated.summary["metrics"]["val_loss"] == rows[-1]["val_loss"]


def newest_and_best(values: Dict[int, float]) -> List[str]:
    """The names of two checkpoints, from what is measured of all by update."""
    (lowest, best), (second, _) = sorted((value, update) for update, value in values.items())[:2]
    assert best < 12, "nothing but the newest would be kept"
    assert second - lowest > 1e-4, "it would be a matter of rounding"
    return [f"update-{update:08}" for update in (best, 12)]


KEEPING = {
    "logs as often": (OFTEN, lambda losses: {made: sum(losses[made - 2 : made]) / 2 for made in range(2, 13, 2)}),
    # Between two logs, by the mean since the last.
    "rare logs": (RARE_LOGS, lambda losses: {made: sum(losses[:made]) / made for made in range(1, 13)}),
}


@pytest.mark.parametrize("case", KEEPING)
def test_only_the_newest_and_the_best_are_kept(run: Callable[..., Run], losses: List[float], case: str) -> None:
    frequencies, measured = KEEPING[case]
    found = run("run", HARDLY_LEARNS, keep_checkpoints=1, **frequencies)
    assert found.checkpoints == newest_and_best(measured(losses))


@pytest.mark.parametrize("case", KEEPING)
def test_the_best_is_kept_by_a_run_that_continues_in_place(
    run: Callable[..., Run], losses: List[float], case: str, tmp_path: Path
) -> None:
    frequencies, measured = KEEPING[case]
    kept: Dict[str, Any] = {"keep_checkpoints": 1, **frequencies}

    class StopAfterEight(StopRequest):
        calls = 0

        def agreed(self) -> bool:
            self.calls += 1
            return self.calls == 8

    with pytest.raises(StoppedError):
        run("stopped", HARDLY_LEARNS, stop=StopAfterEight, **kept)
    continued = run("stopped", HARDLY_LEARNS, resume=str(tmp_path / "stopped"), **kept)
    assert continued.checkpoints == newest_and_best(measured(losses))


def test_checkpoints_can_go_elsewhere(run: Callable[..., Run], tmp_path: Path) -> None:
    found = run("run", checkpoint_output_dir=str(tmp_path / "elsewhere"), num_epochs=1)
    assert found.checkpoints == []
    assert (tmp_path / "elsewhere" / "update-00000004" / "manifest.json").is_file()
    assert found.summary["checkpoint"] == str(tmp_path / "elsewhere" / "update-00000004")


def test_checkpoints_of_another_run_are_not_written_over(
    run: Callable[..., Run], validated: Run, tmp_path: Path
) -> None:
    more: Dict[str, Any] = {"checkpoint_output_dir": str(tmp_path / "elsewhere"), "validation": False}
    first = run("first", num_epochs=1, **more)
    with pytest.raises(
        SettingsError, match=re.escape(f"elsewhere holds checkpoints of another run, {first.path}")
    ) as caught:
        run("second", **more)
    kept = tmp_path / "second" / "attempts" / "1"
    kept.mkdir(parents=True)
    (tmp_path / "second" / "instance-000").rename(kept / "instance-000")
    with pytest.raises(SettingsError, match="checkpoints of another run"):
        run("second", resume=str(tmp_path / "elsewhere"), **more)  # as ipulaunch resume does it
    assert f"--resume {tmp_path / 'elsewhere'}" in caught.value.hint
    with pytest.raises(SettingsError, match="checkpoints of another run"):
        run("third", resume=str(validated.path), **more)
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

    told = re.escape(f"another run, {tmp_path / 'other'}, has begun to write checkpoints to")
    with pytest.raises(SettingsError, match=told):
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


def test_checkpoints_of_another_run_can_be_evaluated(run: Callable[..., Run], validated: Run) -> None:
    found = run("evaluated", **evaluating(validated))
    assert "updates" not in found.summary
    expected = [(row["checkpoint"], row["val_loss"]) for row in validated.rows if "checkpoint" in row]
    assert [(row["checkpoint"], row["val_loss"]) for row in found.rows] == expected


def test_a_damaged_checkpoint_is_left_out_of_the_evaluation(run: Callable[..., Run], copied: Run) -> None:
    paths = sorted((copied.path / "checkpoints").iterdir())
    (paths[1] / "state.npz").write_bytes(b"damaged")
    found = run("evaluated", **evaluating(copied))
    assert [row["update"] for row in found.rows] == [4, 12]
    assert found.summary["best"] in found.rows
    (warning,) = warnings_of(found)
    assert warning.startswith(f"{paths[1]} is not a complete checkpoint: ") and warning.endswith(
        "; it is not evaluated"
    )
    for path in paths:
        (path / "state.npz").write_bytes(b"damaged")
    with pytest.raises(DataError, match=re.escape(f"none of the checkpoints in {paths[0].parent} is complete")):
        run("nothing", **evaluating(copied))


def test_random_weights_are_said_to_be_random(run: Callable[..., Run]) -> None:
    found = run("run", training=False)
    (warning,) = (event["message"] for event in found.events if event["event"] == "warning")
    assert warning == "there is no checkpoint: random weights are evaluated"
    assert 0 <= found.summary["metrics"]["val_accuracy"] <= 1


def test_the_first_checkpoint_that_reaches_a_target_is_named(run: Callable[..., Run], validated: Run) -> None:
    accuracies = [row["val_accuracy"] for row in validated.rows if "checkpoint" in row]
    target = max(accuracies) or 0.01
    found = run("run", target_accuracy=target, **evaluating(validated)).summary
    assert found["judged_by"] == "val_accuracy"
    assert found["target"]["reached_by"]["checkpoint"] == validated.checkpoints[accuracies.index(target)]


def test_a_target_may_not_be_reached(run: Callable[..., Run]) -> None:
    evaluate: Dict[str, Any] = {"training": False, "target_accuracy": 1.0}
    assert run("never", **evaluate).summary["target"] == {"value": 1.0, "reached_by": None}


def test_of_errors_the_lower_one_is_better() -> None:
    rows = [
        {"update": update, "val_loss": error, "val_mae": error} for update, error in ((4, 0.3), (8, 0.1), (12, 0.2))
    ]
    found = judged(rows, measures_of(CosmoflowSettings())[-1], 0.25)
    assert (found["judged_by"], found["best"], found["target"]["reached_by"]) == ("val_mae", rows[1], rows[1])
    assert judged(rows, measures_of(CosmoflowSettings())[-1], 0.05)["target"]["reached_by"] is None


def test_of_checkpoints_that_get_nothing_right_none_is_best() -> None:
    rows: List[Dict[str, Any]] = [{"update": update, "val_loss": 1 / update, "val_accuracy": 0.0} for update in (4, 8)]
    assert "best" not in judged(rows, measures_of(ImageSettings())[-1], None)
    rows.append({"update": 12, "val_loss": 1.0, "val_accuracy": 0.5})
    assert judged(rows, measures_of(ImageSettings())[-1], None)["best"] == rows[-1]


def test_validation_has_a_micro_batch_of_its_own(run: Callable[..., Run], validated: Run) -> None:
    found = run("evaluated", validation_micro_batch_size=5, **evaluating(validated))
    assert found.summary["metrics"]["val_loss"] == pytest.approx(validated.summary["metrics"]["val_loss"], rel=1e-5)


def test_metrics_are_written_in_three_forms(validated: Run) -> None:
    found = validated
    with (found.path / "history.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["update"] for row in table] == ["4", "8", "12"]
    assert float(table[0]["loss"]) == found.rows[0]["loss"]
    assert float(table[2]["val_accuracy"]) == found.rows[-1]["val_accuracy"]
    assert table[2]["checkpoint"] == "update-00000012"
    (events,) = (found.path / "tensorboard").glob("events.out.tfevents.*")
    tags = {
        value.tag
        for record in tf.data.TFRecordDataset(str(events))
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value
    }
    assert tags == {"loss", "accuracy", "learning_rate", "samples_per_s", "train_s", "val_loss", "val_accuracy"}


def test_the_learning_rate_follows_its_schedule(whole: Run) -> None:
    rates = [row["learning_rate"] for row in whole.rows]
    last = [0.025 * (1 + math.cos(math.pi * update / 12)) for update in (3, 7, 11)]  # counted from 0
    assert rates == pytest.approx(last, abs=1e-6)


def test_made_up_samples_can_come_from_the_step(run: Callable[..., Run]) -> None:
    settings = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, synthetic_data="ipu"))
    found = run("run", settings, num_epochs=1)
    assert found.summary["samples"] == 32 and found.summary["metrics"]["val_loss"] > 0


@pytest.mark.parametrize("given", [{"host_preprocess": True}, {"eight_bit_transfer": False}], ids=["host", "floats"])
def test_what_the_host_normalises_is_what_the_device_would(
    run: Callable[..., Run], whole: Run, given: Dict[str, bool]
) -> None:
    settings = dataclasses.replace(SETTINGS, data=dataclasses.replace(SETTINGS.data, **given))
    found = run("run", settings, validation=False)
    for mine, theirs in zip(found.checkpoint(12).weights, whole.checkpoint(12).weights):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_a_missing_set_says_what_is_missing(run: Callable[..., Run], tmp_path: Path) -> None:
    real = dataclasses.replace(SETTINGS.data, synthetic_data=None)
    with pytest.raises(DataError, match="needs --dataset-path, or --synthetic-data cpu"):
        run("none", dataclasses.replace(SETTINGS, data=real))
    with pytest.raises(DataError, match="there is no MNIST in"):
        run("empty", dataclasses.replace(SETTINGS, data=dataclasses.replace(real, directory=str(tmp_path))))
