"""What a run does on request beside training: loading first, judging for sweeps, cleaning up, Weights & Biases."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Optional

import numpy as np
import pytest
from fixtures.plans import ipu_backend, plan_of

from ipulaunch.configs.errors import JobError, NotReadyError, StoppedError
from ipulaunch.configs.runs.checkpoints import found_in
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.images import ImageData, ImageModel, ImageSettings
from ipulaunch.configs.settings.optimization import Optimizer
from ipulaunch.configs.settings.sections import Training
from ipulaunch.configs.settings.workload import Logging
from ipulaunch.topology import Batch
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest
from ipulaunch.workers.models.measures import Measure
from ipulaunch.workers.run import run_instance
from ipulaunch.workers.state.checkpoints import Checkpoint, load
from ipulaunch.workers.state.keeper import Keeper
from ipulaunch.workers.state.weights_and_biases import wandb_run
from ipulaunch.workers.validate import sweep_metrics

pytestmark = pytest.mark.usefixtures("one_dense_layer")

SETTINGS = ImageSettings(
    data=ImageData(synthetic_data="cpu", n_train=16, n_valid=5, side=10, channels=1, classes=3),
    model=ImageModel("mnist_cnn", dropout=0.3),
    optimizer=Optimizer("sgd", 0.05, momentum=0.9),
    training=Training(num_epochs=2, micro_batch_size=2, gradient_accumulation_count=2),
)


Make = Callable[..., Instance]


@pytest.fixture
def instance_in() -> Iterator[Make]:
    made: List[Records] = []

    def make(
        path: Path, settings: ImageSettings, index: int = 0, instances: int = 1, on_ipus: bool = False
    ) -> Instance:
        plan, run = plan_of(Batch(2, 2, 2), instances), RunDirectory(path)
        backend: Any = ipu_backend(settings, plan) if on_ipus else CpuBackend(settings, plan, index, Alone())
        made.append(Records(run, index))
        stop = StopRequest(run, index, Alone())
        return Instance(Job("mnist", "cpu", settings), plan, index, backend, run, made[-1], 1, stop)

    yield make
    for records in made:
        records.done({})


def with_options(logging: Optional[Logging] = None, data: Optional[Dict[str, Any]] = None, **training: Any) -> Any:
    return dataclasses.replace(
        SETTINGS,
        logging=logging or Logging(),
        data=dataclasses.replace(SETTINGS.data, **(data or {})),
        training=dataclasses.replace(SETTINGS.training, **training),
    )


def events_of(path: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in (path / "instance-000" / "events.jsonl").read_text().splitlines()]


def newest(path: Path) -> Checkpoint:
    return load(found_in(path)[-1])


@pytest.mark.core
def test_loading_the_program_first_changes_nothing_that_is_learned(instance_in: Make, tmp_path: Path) -> None:
    plain = run_instance(instance_in(tmp_path / "plain", SETTINGS))
    loaded = run_instance(instance_in(tmp_path / "loaded", with_options(Logging(mlperf=True))))
    mine, theirs = newest(tmp_path / "loaded"), newest(tmp_path / "plain")
    for found, expected in zip([*mine.weights, *mine.optimizer], [*theirs.weights, *theirs.optimizer]):
        assert np.array_equal(found, expected)
    assert loaded["metrics"] == plain["metrics"] and loaded["updates"] == plain["updates"] == 4
    kinds = [event["event"] for event in events_of(tmp_path / "loaded")]
    assert kinds.index("loading") < kinds.index("training") < kinds.index("validation") < kinds.index("time_to_train")
    assert loaded["time_to_train_s"] >= loaded["train_s"]


@pytest.mark.parametrize("sdk", ["2.6", "3.4"])
def test_ipus_forget_what_loading_the_program_has_learned(
    sdk: str, instance_in: Make, tmp_path: Path, standin: Callable[..., Any]
) -> None:
    model = ImageModel("mnist_cnn", dropout=0.0)  # IPUs draw other numbers than CPUs
    run_instance(instance_in(tmp_path / "plain", dataclasses.replace(SETTINGS, model=model)))
    loaded = dataclasses.replace(with_options(Logging(mlperf=True)), model=model)
    standin(sdk, replicas=2)
    run_instance(instance_in(tmp_path / "loaded", loaded, on_ipus=True))
    mine, theirs = newest(tmp_path / "loaded"), newest(tmp_path / "plain")
    for found, expected in zip([*mine.weights, *mine.optimizer], [*theirs.weights, *theirs.optimizer]):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert mine.update == 4 and int(mine.optimizer[0]) == 4


@pytest.mark.parametrize("rounding", ["off", "on"])
def test_ipus_draw_the_same_numbers_after_loading_the_program(
    rounding: str, instance_in: Make, tmp_path: Path, standin: Callable[..., Any], read_calls: Any
) -> None:
    device = dataclasses.replace(SETTINGS.device, stochastic_rounding=rounding)
    settings = dataclasses.replace(with_options(Logging(mlperf=True), validation=False), device=device)
    standin("3.4", replicas=2)
    run_instance(instance_in(tmp_path / "run", settings, on_ipus=True))
    seed, seeds_of_fits = None, []
    for name, given in read_calls(tmp_path / "calls.jsonl", 0):
        if name.endswith("reset_ipu_seed"):
            seed = given
        elif name == "Model.fit":
            seeds_of_fits.append(seed)
            seed = None  # the generator has drawn from it
    loading, training = seeds_of_fits
    assert loading is not None and training == loading


def test_a_training_that_is_not_shuffled_takes_the_order_of_the_files(instance_in: Make, tmp_path: Path) -> None:
    settings = with_options(data={"shuffle": False}, trace_samples=True, validation=False)
    run_instance(instance_in(tmp_path, settings))
    lines = (tmp_path / "instance-000" / "samples.csv").read_text().splitlines()[1:]
    taken = [[int(word) for word in line.split(",")] for line in lines]
    for epoch in (0, 1):
        assert sorted(row[4] for row in taken if row[0] == epoch and row[1] == 2 * epoch) == list(range(8))


def test_only_a_run_on_ipus_costs_ipu_hours(instance_in: Make, tmp_path: Path) -> None:
    instance = instance_in(tmp_path, with_options())
    on_ipus = dataclasses.replace(instance, job=instance.job._replace(backend="ipu"))
    hours = on_ipus.costs(7200.0)["energy"]["ipu_hours"]
    assert (instance.costs(7200.0), hours) == ({}, dict.fromkeys(("low", "high"), 2.0 * instance.plan.ipus))


def test_checkpoints_are_removed_once_they_are_validated(instance_in: Make, tmp_path: Path) -> None:
    summary = run_instance(instance_in(tmp_path, with_options(clean_dir=True)))
    assert not (tmp_path / "checkpoints").exists()
    assert summary["checkpoint"] == "" and summary["metrics"]["val_accuracy"] >= 0
    assert len([event for event in events_of(tmp_path) if event["event"] == "validation"]) == 2


def test_what_others_keep_beside_the_checkpoints_stays(instance_in: Make, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mine"
    elsewhere.mkdir()
    (elsewhere / "notes.txt").write_text("keep me")
    run_instance(instance_in(tmp_path / "run", with_options(clean_dir=True, checkpoint_output_dir=str(elsewhere))))
    assert [path.name for path in elsewhere.iterdir()] == ["notes.txt"]


def test_checkpoints_stay_where_validation_fails(
    instance_in: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise JobError("no validation")

    monkeypatch.setattr("ipulaunch.workers.run.validate", fail)
    with pytest.raises(JobError):
        run_instance(instance_in(tmp_path, with_options(clean_dir=True)))
    assert len(found_in(tmp_path)) == 2


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the run", "elsewhere"])
def test_every_instance_writes_its_checkpoints_if_asked(elsewhere: bool, instance_in: Make, tmp_path: Path) -> None:
    """Those of instance 0 where they always are; resuming and validation find no others."""
    where = tmp_path / "elsewhere" if elsewhere else tmp_path / "run" / "checkpoints"
    settings = with_options(ckpt_all_instances=True, checkpoint_output_dir=str(where) if elsewhere else None)
    keepers = []
    for number in (1, 0):  # instance 0 need not be the first
        instance = instance_in(tmp_path / "run", settings, index=number, instances=2)
        state = SimpleNamespace(save=save)
        keeper = Keeper(instance, state, {})  # type: ignore[arg-type]
        keepers.append(keeper)
        for update in (4, 8):
            keeper.save(SimpleNamespace(updates=update, epoch=update / 4, facts={}))  # type: ignore[arg-type]
    both = ["update-00000004", "update-00000008"]
    assert sorted(path.name for path in where.iterdir()) == ["rank1", *both]
    assert sorted(path.name for path in (where / "rank1").iterdir()) == both
    assert all(path.parent == where for path in found_in(where))
    for keeper in keepers:
        keeper.clean()
    assert not where.exists()


def save(directory: Path, facts: Dict[str, Any]) -> Path:
    path = directory / f"update-{facts['update']:08}"
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(json.dumps({"facts": {"update": facts["update"], "run": facts["run"]}}))
    return path


def test_other_instances_write_none_unless_asked(instance_in: Make, tmp_path: Path) -> None:
    instance = instance_in(tmp_path, SETTINGS, index=1, instances=2)
    keeper = Keeper(instance, SimpleNamespace(save=save), {})  # type: ignore[arg-type]
    keeper.save(SimpleNamespace(updates=4, epoch=1, facts={}))  # type: ignore[arg-type]
    assert not (tmp_path / "checkpoints").exists()


ACCURACY = Measure("accuracy", lambda targets, outputs: outputs, better="higher")
ERROR = Measure("mae", lambda targets, outputs: outputs)


@pytest.mark.parametrize(
    ("measure", "values", "target", "epoch", "metric"),
    [
        pytest.param(ACCURACY, [0.5, 0.77, 0.8], 0.759, 2, 1 / 3, id="reached"),
        pytest.param(ACCURACY, [0.5, 0.77, 0.739], 0.759, 2, np.exp(-0.5) / 3, id="lost again"),
        pytest.param(ACCURACY, [0.5, 0.6, 0.739], 0.759, None, np.exp(-0.5) / 3, id="missed by the margin"),
        pytest.param(ERROR, [0.2, 0.12, 0.1], 0.124, 2, 1 / 3, id="error reached"),
        pytest.param(ERROR, [0.2, 0.15, 0.144], 0.124, None, np.exp(-0.5) / 3, id="error missed"),
    ],
)
def test_what_a_sweep_compares(
    measure: Measure, values: List[float], target: float, epoch: Optional[int], metric: float
) -> None:
    rows = [{f"val_{measure.name}": value, "epoch": number} for number, value in enumerate(values, start=1)]
    found = sweep_metrics(rows, measure, target)
    assert found["epoch_to_target"] == epoch
    assert found["optimization_metric"] == pytest.approx(metric)


def test_weights_that_were_never_trained_have_no_metric() -> None:
    assert sweep_metrics([{"val_accuracy": 0.1, "epoch": 0}], ACCURACY, 0.759)["optimization_metric"] is None


def test_a_sweep_is_in_the_summary(instance_in: Make, tmp_path: Path) -> None:
    summary = run_instance(instance_in(tmp_path, with_options(Logging(sweep=True), target_accuracy=1e-9)))
    assert (summary["epoch_to_target"], summary["optimization_metric"]) == (1, 0.5)


class FakeWandb(ModuleType):
    """As much of wandb as a training uses."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: List[Dict[str, Any]] = []
        self.rows: List[Dict[str, Any]] = []
        self.metrics: List[Any] = []
        self.ended: List[int] = []
        self.fails = False

    def init(self, **arguments: Any) -> FakeWandb:
        if self.fails:
            raise RuntimeError("api_key not configured (no-tty)")
        self.begun.append(arguments)
        return self

    def define_metric(self, name: str, **more: Any) -> None:
        self.metrics.append((name, more))

    def log(self, row: Dict[str, Any]) -> None:
        if self.fails:
            raise ConnectionError("nobody there")
        self.rows.append(json.loads(json.dumps(row)))

    def finish(self, exit_code: int) -> None:
        self.ended.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    module = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return module


@pytest.mark.core
def test_weights_and_biases_is_told_what_the_history_is_told(
    instance_in: Make, tmp_path: Path, wandb: FakeWandb
) -> None:
    logging = Logging(wandb=True, wandb_run_name="mine", wandb_tags=("pod16", "conv"), sweep=True)
    run_instance(instance_in(tmp_path, with_options(logging, target_accuracy=1e-9)))
    (begun,) = wandb.begun
    assert (begun["project"], begun["name"], begun["tags"]) == ("ipulaunch", "mine", ["pod16", "conv"])
    assert begun["dir"] == str(tmp_path)
    assert begun["config"]["workload"] == "mnist" and begun["config"]["training"]["num_epochs"] == 2
    *rows, last = wandb.rows
    assert rows == [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert last["epoch_to_target"] == 1 and last["optimization_metric"] == 0.5 and last["time_to_train"] > 0
    assert wandb.metrics == [("*", {"step_metric": "update"})] and wandb.ended == [0]


def test_a_run_and_its_project_have_names_by_default(
    instance_in: Make, tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    with wandb_run(instance_in(tmp_path / "mnist-1", with_options(Logging(wandb=True)))):
        pass
    assert (wandb.begun[0]["project"], wandb.begun[0]["name"]) == ("theirs", "mnist-1")


def test_weights_and_biases_is_off_unless_asked_for_and_on_other_instances(
    instance_in: Make, tmp_path: Path, wandb: FakeWandb
) -> None:
    asked = with_options(Logging(wandb=True))
    for instance in (instance_in(tmp_path, SETTINGS), instance_in(tmp_path, asked, index=1, instances=2)):
        with wandb_run(instance) as hook:
            hook.log({"update": 1})
            hook.summarise({})
    assert wandb.begun == wandb.rows == wandb.ended == []


@pytest.mark.parametrize(("error", "code"), [(JobError("failed"), 1), (StoppedError("stopped"), 0)])
def test_a_run_that_ends_early_is_ended_there_as_well(
    error: Exception, code: int, instance_in: Make, tmp_path: Path, wandb: FakeWandb
) -> None:
    with pytest.raises(type(error)), wandb_run(instance_in(tmp_path, with_options(Logging(wandb=True)))):
        raise error
    assert wandb.ended == [code]


def test_a_missing_package_is_told_with_what_to_install(
    instance_in: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(NotReadyError, match="--wandb is given, and Weights & Biases is not installed") as caught:
        run_instance(instance_in(tmp_path, with_options(Logging(wandb=True))))
    assert "pip install wandb" in caught.value.hint


def test_a_service_that_cannot_be_reached_is_told_with_the_way_offline(
    instance_in: Make, tmp_path: Path, wandb: FakeWandb
) -> None:
    wandb.fails = True
    with pytest.raises(NotReadyError, match="does not begin: RuntimeError: api_key not configured") as caught:
        run_instance(instance_in(tmp_path, with_options(Logging(wandb=True))))
    assert "WANDB_MODE=offline" in caught.value.hint


def test_a_service_that_fails_at_the_first_call_is_a_warning(
    instance_in: Make, tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, **more: Any) -> None:
        raise TypeError("define_metric() got an unexpected keyword argument 'step_metric'")

    monkeypatch.setattr(wandb, "define_metric", refuse)  # as in a version that does not have it yet
    with wandb_run(instance_in(tmp_path, with_options(Logging(wandb=True)))) as hook:
        hook.log({"update": 1})
    (warning,) = [event["message"] for event in events_of(tmp_path) if event["event"] == "warning"]
    assert warning.startswith("Weights & Biases does not take what is logged: TypeError: define_metric() got")
    assert (wandb.rows, wandb.ended) == ([{"update": 1}], [0])


def test_a_service_that_is_lost_on_the_way_is_a_warning(instance_in: Make, tmp_path: Path, wandb: FakeWandb) -> None:
    with wandb_run(instance_in(tmp_path, with_options(Logging(wandb=True)))) as hook:
        wandb.fails = True
        hook.log({"update": 1})
        hook.log({"update": 2})
    warnings = [event["message"] for event in events_of(tmp_path) if event["event"] == "warning"]
    assert warnings == ["Weights & Biases does not take what is logged: ConnectionError: nobody there"]
    assert wandb.ended == [0]
