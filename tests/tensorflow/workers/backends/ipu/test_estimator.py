"""The stand-in's Estimators refuse what the SDK's refuse. That they train as on CPUs is in test_matrix.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import tensorflow as tf
from fixtures.plans import ipu_backend, plan_of

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology.planning.batch import make_batch
from ipulaunch.topology.planning.plan import Plan
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.backends.ipu.backend import IpuBackend
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest
from ipulaunch.workers.run import run_instance

if not hasattr(tf, "estimator"):
    pytest.skip("this TensorFlow has no Estimators", allow_module_level=True)
pytestmark = pytest.mark.usefixtures("smooth")


@pytest.fixture()
def ipu(standin: Any) -> Any:
    standin("3.4")
    from tensorflow.python import ipu

    return ipu


def run_config(ipu: Any, io_tiles: int = 0, **given: Any) -> Any:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = given.get("num_replicas", 1) * given.get("num_shards", 1)
    config.io_tiles.num_io_tiles = io_tiles
    options = ipu.ipu_run_config.IPURunConfig(ipu_options=config, **given)
    return ipu.ipu_run_config.RunConfig(ipu_run_config=options)


def feed() -> Any:
    return tf.data.Dataset.from_tensors({"x": tf.ones([2, 3])}).repeat()


def descent() -> Any:
    return tf.compat.v1.train.GradientDescentOptimizer(0.1)


def estimator(ipu: Any, minimize: Any = None, make_spec: Any = None, **given: Any) -> Any:
    """An IPUEstimator of one layer; this is how it is trained, or the spec that it has instead."""

    def model_fn(features: Any, mode: str) -> Any:
        loss = tf.reduce_mean(tf.keras.layers.Dense(1)(features["x"]))
        if make_spec is not None:
            return make_spec(mode, loss)
        train_op = (minimize or descent().minimize)(loss)
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    return ipu.ipu_estimator.IPUEstimator(model_fn, config=run_config(ipu, **given))


def test_run_configs_agree_with_the_ipus_that_are_selected(ipu: Any) -> None:
    make = ipu.ipu_run_config.IPURunConfig
    with pytest.raises(TypeError, match="autosharding"):
        make(autosharding=True)
    with pytest.raises(ValueError, match="needs ipu_options"):
        make(num_replicas=2)
    with pytest.raises(TypeError, match="is an IPUConfig"):
        make(ipu_options={})
    config = ipu.config.IPUConfig()
    with pytest.raises(ValueError, match="select 0 IPUs, and IPURunConfig has 1 devices"):
        make(ipu_options=config)
    config.auto_select_ipus = 3
    with pytest.raises(ValueError, match="select 3 IPUs, and IPURunConfig has 4 devices"):
        make(ipu_options=config, num_replicas=2, num_shards=2)


def test_run_configs_find_mistakes_of_the_configuration(ipu: Any) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus, config.io_tiles.place_ops_on_io_tiles = 1, True
    with pytest.raises(ValueError, match="place_ops_on_io_tiles"):
        ipu.ipu_run_config.IPURunConfig(ipu_options=config)


def test_estimators_with_a_strategy_come_back_after_each_step(ipu: Any) -> None:
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    config = run_config(ipu, iterations_per_loop=2)
    for name in ("train_distribute", "eval_distribute"):
        with pytest.raises(NotImplementedError, match="iterations_per_loop"):
            ipu.ipu_estimator.IPUEstimator(lambda features, mode: None, config=config.replace(**{name: strategy}))


def test_the_host_is_called_after_single_steps(ipu: Any) -> None:
    def model_fn(mode: str, loss: Any) -> Any:
        call = (lambda value: value, [loss])
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=descent().minimize(loss), host_call=call)

    with pytest.raises(ValueError, match="host_call is not allowed"):
        estimator(ipu, make_spec=model_fn, iterations_per_loop=2).train(feed, steps=2)


def test_estimators_take_the_run_config_of_ipus(ipu: Any) -> None:
    for config in (tf.estimator.RunConfig(), None):
        with pytest.raises(AttributeError):
            ipu.ipu_estimator.IPUEstimator(lambda features, mode: None, config=config)
        with pytest.raises(AttributeError):
            ipu.ipu_pipeline_estimator.IPUPipelineEstimator(lambda mode: None, config=config)


def test_the_model_of_an_estimator_takes_features(ipu: Any) -> None:
    with pytest.raises(ValueError, match="must include features"):
        ipu.ipu_estimator.IPUEstimator(lambda mode: None, config=run_config(ipu))


SPECS: Dict[str, Any] = {
    "no train_op": ({"mode": "train", "loss": 1.0}, ValueError),
    "no loss": ({"mode": "eval"}, ValueError),
    "a loss of many": ({"mode": "eval", "loss": [1.0, 2.0]}, ValueError),
    "no hook": ({"mode": "eval", "loss": 1.0, "evaluation_hooks": [1]}, TypeError),
    "metrics by number": ({"mode": "eval", "loss": 1.0, "eval_metric_ops": 1}, TypeError),
    "metrics without a function": ({"mode": "eval", "loss": 1.0, "eval_metrics": [1]}, TypeError),
    "metrics of three": ({"mode": "eval", "loss": 1.0, "eval_metrics": (len, [], [])}, ValueError),
    "metrics of one tensor": ({"mode": "eval", "loss": 1.0, "eval_metrics": (len, 1)}, TypeError),
    "metrics of no function": ({"mode": "eval", "loss": 1.0, "eval_metrics": (1, [])}, TypeError),
}


@pytest.mark.parametrize(("given", "error"), SPECS.values(), ids=SPECS)
def test_specs_are_checked_when_they_are_made(given: Dict[str, Any], error: Any, ipu: Any) -> None:
    loss = given.get("loss")
    given = {**given, "loss": loss if loss is None else tf.constant(loss)}
    with pytest.raises(error):
        ipu.ipu_estimator.IPUEstimatorSpec(**given)


@pytest.mark.parametrize(
    ("model_fn", "why"),
    [
        (lambda mode, loss: loss, "must return an EstimatorSpec"),
        (lambda mode, loss: tf.estimator.EstimatorSpec("infer", predictions=loss), "must contain a loss"),
        (lambda mode, loss: tf.estimator.EstimatorSpec("eval", loss=loss), "must contain a train_op"),
    ],
    ids=["no spec", "no loss", "no train_op"],
)
def test_a_model_that_trains_returns_a_spec_with_loss_and_train_op(model_fn: Any, why: str, ipu: Any) -> None:
    with pytest.raises(ValueError, match=why):
        estimator(ipu, make_spec=model_fn).train(feed, steps=1)


def test_a_model_that_is_evaluated_returns_metrics_of_one_kind(ipu: Any) -> None:
    def both(mode: str, loss: Any) -> Any:
        return ipu.ipu_estimator.IPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(len, [loss]), eval_metric_ops={"loss": (loss, loss)}
        )

    trained = estimator(ipu)
    trained.train(feed, steps=1)
    saved = trained.inner.latest_checkpoint()
    for make_spec, why in (
        (lambda mode, loss: ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss), "must contain eval_metrics"),
        (both, "cannot contain both"),
    ):
        with pytest.raises(ValueError, match=why):
            estimator(ipu, make_spec=make_spec).evaluate(feed, steps=1, checkpoint_path=saved)


def test_the_sdk_counts_the_steps_itself(ipu: Any) -> None:
    counted = tf.compat.v1.train.get_global_step
    with pytest.raises(ValueError, match="Illegal increment of the global_step"):
        estimator(ipu, lambda loss: descent().minimize(loss, global_step=counted())).train(feed, steps=1)


def test_steps_come_in_whole_loops(ipu: Any) -> None:
    loops = estimator(ipu, iterations_per_loop=2)
    with pytest.raises(ValueError, match="must be a multiple of iterations_per_loop"):
        loops.train(feed, steps=3)
    with pytest.raises(ValueError, match="must be a multiple of iterations_per_loop"):
        loops.evaluate(feed, steps=3)
    for steps in ({}, {"steps": 2, "max_steps": 2}):
        with pytest.raises(ValueError, match="One of steps and max_steps"):
            loops.train(feed, **steps)
    with pytest.raises(ValueError, match="One of steps and max_steps"):
        loops.evaluate(feed)


def test_a_feed_that_ends_too_early_ends_the_training(ipu: Any) -> None:
    with pytest.raises(RuntimeError, match="run dry"):
        estimator(ipu, iterations_per_loop=2).train(lambda: feed().take(1), steps=4)


@pytest.mark.parametrize(
    ("data", "given", "error"),
    [
        (lambda: 1, {}, ValueError),
        (lambda: feed().unbatch().batch(2), {}, ValueError),
        (feed, {"prefetch_depth": -1}, ValueError),
        (feed, {"prefetch_depth": 256}, ValueError),
        (lambda: tf.data.Dataset.from_tensors((1, 2, 3)).repeat(), {}, ValueError),
        (lambda: tf.data.Dataset.from_tensors((1, 2)).repeat(), {}, ValueError),
    ],
    ids=["no dataset", "an open shape", "no depth", "too deep", "three elements", "labels that are not taken"],
)
def test_feeds_are_such_as_the_infeed_takes(data: Any, given: Dict[str, Any], error: Any, ipu: Any) -> None:
    with pytest.raises(error):
        estimator(ipu, **given).train(data, steps=1)


def test_replicas_need_an_optimizer_that_crosses_them(ipu: Any) -> None:
    with pytest.raises(ValueError, match="not a valid replicated training graph"):
        estimator(ipu, num_replicas=2).train(feed, steps=1)


def test_the_stand_in_counts_the_ipus_of_all_instances(ipu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import popdist.tensorflow

    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "4")
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "2")
    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config, ipus_per_replica=1, configure_device=True)
    options = ipu.ipu_run_config.IPURunConfig(ipu_options=config, num_replicas=2)
    crossed = ipu.optimizers.cross_replica_optimizer.CrossReplicaOptimizer

    def model_fn(features: Any, mode: str) -> Any:
        loss = tf.reduce_mean(tf.keras.layers.Dense(1)(features["x"]))
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=crossed(descent()).minimize(loss))

    ours = ipu.ipu_estimator.IPUEstimator(model_fn, config=ipu.ipu_run_config.RunConfig(ipu_run_config=options))
    with pytest.raises(ValueError, match="IPURunConfig has 2 devices, and 4 are configured"):
        ours.train(feed, steps=1)


def pipeline(ipu: Any, config: Dict[str, Any], **changes: Any) -> Any:
    """An IPUPipelineEstimator of two layers in two stages; the spec is changed so."""
    output = ipu.ops.pipelining_ops.OptimizerFunctionOutput

    def model_fn(mode: str) -> Any:
        def first(x: Any) -> Any:
            return tf.keras.layers.Dense(2)(x)

        def second(x: Any) -> Any:
            return tf.reduce_mean(tf.keras.layers.Dense(1)(x))

        given: Dict[str, Any] = {
            "computational_stages": [first, second],
            "gradient_accumulation_count": 4,
            "optimizer_function": lambda loss: output(descent(), loss),
            "eval_metrics_fn": lambda loss: {"loss": tf.reduce_mean(loss)},
        }
        return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(mode, **{**given, **changes})

    config = {"iterations_per_loop": 4, "num_shards": 2, **config}
    return ipu.ipu_pipeline_estimator.IPUPipelineEstimator(model_fn, config=run_config(ipu, **config))


PIPELINES: Dict[str, Any] = {
    "no optimizer": ({}, {"optimizer_function": None}, ValueError),
    "no accumulation": ({}, {"gradient_accumulation_count": None}, ValueError),
    "what the Estimator accumulates": ({}, {"accumulate_outfeed": True}, ValueError),
    "too many devices": ({"num_shards": 4}, {}, ValueError),
    "too few devices": ({"num_shards": 1}, {}, ValueError),
    "a loop that is too short": ({"iterations_per_loop": 2}, {}, ValueError),
    "a loop of one and a half": ({"iterations_per_loop": 6}, {}, ValueError),
    "what the Estimator gives": ({}, {"outfeed_loss": True}, TypeError),
    "a name that the pipeline does not have": ({}, {"schedule": 1}, TypeError),
    "a mapping of one": ({"num_shards": 1}, {"device_mapping": [0]}, ValueError),
    "half a turn": ({}, {"gradient_accumulation_count": 2}, tf.errors.FailedPreconditionError),
    "a turn with io tiles": ({"io_tiles": 32}, {}, tf.errors.FailedPreconditionError),
}


@pytest.mark.parametrize(("config", "changes", "error"), PIPELINES.values(), ids=PIPELINES)
def test_pipelines_are_refused_before_they_train(config: Any, changes: Any, error: Any, ipu: Any) -> None:
    with pytest.raises(error):
        pipeline(ipu, config, **changes).train(feed, steps=config.get("iterations_per_loop", 4))


def test_the_loop_of_a_pipeline_is_checked_before_its_schedule(ipu: Any) -> None:
    with pytest.raises(ValueError, match="iterations_per_loop"):
        pipeline(ipu, {"iterations_per_loop": 6}, pipeline_schedule="Grouped").train(feed, steps=6)


def test_the_devices_of_a_pipeline_are_those_of_its_mapping(ipu: Any) -> None:
    pipeline(ipu, {"num_shards": 1}, device_mapping=[0, 0]).train(feed, steps=4)


def test_the_model_of_a_pipeline_takes_no_features(ipu: Any) -> None:
    made = ipu.ipu_pipeline_estimator.IPUPipelineEstimator(
        lambda features, mode: None, config=run_config(ipu, num_shards=2)
    )
    with pytest.raises(ValueError, match="takes no features or labels"):
        made.train(feed, steps=1)


def test_the_model_of_a_pipeline_returns_its_spec(ipu: Any) -> None:
    made = ipu.ipu_pipeline_estimator.IPUPipelineEstimator(lambda mode: None, config=run_config(ipu, num_shards=2))
    with pytest.raises(TypeError, match="IPUPipelineEstimatorSpec"):
        made.train(feed, steps=1)


def test_the_optimizer_of_a_pipeline_is_one_of_tensorflow(ipu: Any) -> None:
    output = ipu.ops.pipelining_ops.OptimizerFunctionOutput
    keras = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers).SGD(0.1)
    with pytest.raises(TypeError, match="takes an optimizer"):
        pipeline(ipu, {}, optimizer_function=lambda loss: output(keras, loss)).train(feed, steps=4)
    with pytest.raises(TypeError, match="takes a loss"):
        pipeline(ipu, {}, optimizer_function=lambda loss: output(descent(), 1.0)).train(feed, steps=4)


class Annotated(tf.compat.v1.train.GradientDescentOptimizer):  # type: ignore[misc]
    """An optimizer in the syntax of Python 3."""

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
        return super().apply_gradients(grads_and_vars, global_step, name)


@pytest.mark.parametrize("sdk", ["2.6", "3.0"])
def test_newer_sdks_refuse_annotated_optimizers_in_a_pipeline(sdk: str, standin: Any) -> None:
    standin(sdk)
    from tensorflow.python import ipu

    output = ipu.ops.pipelining_ops.OptimizerFunctionOutput
    made = pipeline(ipu, {}, optimizer_function=lambda loss: output(Annotated(0.1), loss))
    if sdk == "2.6":
        made.train(feed, steps=4)
    else:
        with pytest.raises(ValueError, match="annotations"):
            made.train(feed, steps=4)


def test_a_stage_of_a_pipeline_reads_what_it_is_handed_and_variables(ipu: Any) -> None:
    def stages(captured: Any) -> List[Any]:
        return [lambda x: x * captured(), lambda x: tf.reduce_mean(tf.keras.layers.Dense(1)(x))]

    step = tf.compat.v1.train.get_global_step
    outside: List[Any] = []

    def made_by_another(x: Any) -> Any:
        outside.append(tf.reduce_mean(x))
        return x

    pipeline(ipu, {}, computational_stages=stages(lambda: tf.cast(step(), tf.float32) + 1)).train(feed, steps=4)
    late = [made_by_another, lambda x: tf.reduce_mean(tf.keras.layers.Dense(1)(x) * outside[-1])]
    with pytest.raises(ValueError, match="which is no variable and is not handed to it"):
        pipeline(ipu, {}, computational_stages=late).train(feed, steps=4)


def test_an_evaluation_counts_its_steps_in_the_step_that_it_reports(ipu: Any) -> None:
    trained = pipeline(ipu, {})
    trained.train(feed, steps=8)
    assert trained.evaluate(feed, steps=4)["global_step"] == 12


def test_replicas_of_a_pipeline_that_would_train_apart_are_told(ipu: Any) -> None:
    with pytest.raises(ValueError, match="train apart"):
        pipeline(ipu, {"num_replicas": 2}).train(feed, steps=4)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"eval_metrics_fn": None}, ValueError),
        ({"eval_metrics_fn": lambda loss: [loss]}, TypeError),
        ({"eval_metrics_fn": lambda loss: {}}, KeyError),
        ({"gradient_accumulation_count": 1}, tf.errors.FailedPreconditionError),
    ],
    ids=["none", "a list", "without the loss", "half a turn"],
)
def test_the_evaluation_of_a_pipeline_returns_a_dict_with_the_loss(changes: Any, error: Any, ipu: Any) -> None:
    trained = pipeline(ipu, {})
    trained.train(feed, steps=4)
    saved = trained.inner.latest_checkpoint()
    with pytest.raises(error):
        pipeline(ipu, {}, **changes).evaluate(feed, steps=4, checkpoint_path=saved)


SMALL = ["data.side=16", "data.n_valid=11", "training.micro_batch_size=1", "training.num_epochs=1", "model.dropout=0"]
SMALL += ["data.n_train=32", "estimator.api=pipeline-estimator", "training.gradient_accumulation_count=4"]


def example(path: Path, place: Any, make: Callable[..., Any], *texts: str) -> Dict[str, Any]:
    """The summary of the published pipeline on a backend."""
    words: List[str] = [*SMALL, f"estimator.model_dir={path / 'model'}", *texts]
    settings = resolve("cifar10", rehearsal=True, overrides=[assignment(word, "--set") for word in words]).settings
    training = settings.training
    batch, _ = make_batch(
        training.micro_batch_size, place.replicas, training.gradient_accumulation_count, None,
        settings.micro_batches_per_turn,
    )  # fmt: skip
    directory = RunDirectory(path / f"run-{len(list(path.glob('run-*')))}")
    plan = plan_of(batch, ipus_per_replica=place.ipus_per_replica)
    records, backend = Records(directory, 0), make(settings, plan)
    job = Job("cifar10", "ipu" if isinstance(backend, IpuBackend) else "cpu", settings)
    stop = StopRequest(directory, 0, backend.collective)
    summary = run_instance(Instance(job, plan, 0, backend, directory, records, 1, stop))
    records.done(summary)
    if training.training:
        assert summary["times_s"]["device"] and bool(summary["times_s"]["data"]) == job.is_rehearsal
    return summary


def on_cpus(settings: Any, plan: Plan) -> Any:
    return CpuBackend(settings, plan, 0, Alone())


def test_a_pipeline_is_tested_without_an_accumulation(
    standin: Any, tmp_path: Path, read_calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its evaluation takes whole turns, whatever the training had."""
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", "2")
    place = standin("3.4", replicas=1)
    trained = example(tmp_path, place, on_cpus)
    texts = ("training.training=false", "training.gradient_accumulation_count=1")
    tested = example(tmp_path, place, ipu_backend, *texts)
    assert tested["metrics"]["val_loss"] == pytest.approx(trained["metrics"]["val_loss"], abs=1e-5)
    (steps,) = [
        given["steps"]
        for name, given in read_calls(tmp_path / "calls.jsonl", 0)
        if name == "IPUPipelineEstimator.evaluate"
    ]
    assert steps == 12  # 11 micro-batches in turns of 2 x 2 stages
    assert json.loads((tmp_path / "run-1" / "instance-000" / "done.json").read_text())["metrics"]


def test_a_continued_training_draws_on(standin: Any, tmp_path: Path, read_calls: Any) -> None:
    """Its first updates do not drop the units that those before them have dropped."""
    place = standin("3.4", replicas=1)
    texts = ("estimator.api=estimator", "training.gradient_accumulation_count=1", "model.dropout=0.5")
    example(tmp_path, place, on_cpus, *texts)
    example(tmp_path, place, ipu_backend, *texts, "training.num_epochs=2")
    seeds = [given["seed"] for name, given in read_calls(tmp_path / "calls.jsonl", 0) if name.endswith("ipu_seed")]
    assert len(seeds) == len(set(seeds)) == 2
