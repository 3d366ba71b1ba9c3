"""Estimators through a strict poprun, with the stand-in as the SDK: as the same trainings on CPUs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
import tensorflow as tf

if not hasattr(tf, "estimator"):
    pytest.skip("this TensorFlow has no Estimators", allow_module_level=True)

FAKES = Path(__file__).parents[2] / "fakes"
IPU = "tensorflow.python.ipu"
Start = Callable[..., None]


@pytest.fixture()
def start(tmp_path: Path, sdk_environment: Any) -> Start:
    """Runs ipulaunch on CPUs, or with the stand-in of an SDK; it must end well."""

    def run(*words: str, sdk: str = "") -> None:
        environ = sdk_environment(sdk or "3.4")
        if not sdk:
            del environ["PYTHONPATH"]
        environ["PATH"] = os.pathsep.join([str(FAKES), str(Path(sys.executable).parent), environ["PATH"]])
        line = [sys.executable, "-m", "ipulaunch.launcher", *words, "--rehearsal", "--oversubscribe"]
        line += [] if sdk else ["--engine", "openmpi"]
        done = subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr

    return run


def weights_in(directory: Path) -> Dict[str, np.ndarray]:
    newest = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(directory)))
    return {name: newest.get_tensor(name) for name in newest.get_variable_to_shape_map()}


def metrics_of(run: Path) -> List[Dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in row if name not in ("train_s", "samples_per_s")} for row in rows]


# The API and its options, the SDK, and what its Estimator is made with.
VARIANTS: Dict[str, Any] = {
    "plain": (["--api", "estimator", "--batches-per-step", "2"], "3.4", (2, 1, 1)),
    "replicated": (["--api", "replica-estimator", "--pod", "4", "--num-instances", "2"], "2.6", (4, 4, 1)),
    "replicas of their own": (["--api", "replica-estimator", "--ipus", "2", "--num-instances", "2"], "3.4", (8, 2, 1)),
    "pipelined": (
        ["--api", "pipeline-estimator", "--pod", "4", "--num-instances", "1", "--gradient-accumulation-count", "4"],
        "3.1",
        (8, 2, 2),
    ),
}
CORE = ("plain", "replicated", "pipelined")  # a variant of each Estimator


@pytest.mark.parametrize(
    ("options", "sdk", "made"),
    [pytest.param(*row, id=name, marks=[pytest.mark.core] if name in CORE else []) for name, row in VARIANTS.items()],
)
def test_ipus_continue_a_training_as_cpus_do(
    options: List[str], sdk: str, made: Any, start: Start, read_calls: Any, tmp_path: Path
) -> None:
    words = ["cifar10", *options, "--side", "16", "--n-train", "32", "--n-valid", "11", "--batch-size", "2"]
    words += ["--dropout", "0"]
    start(*words, "--num-epochs", "1", "--run-dir", "first", "--model-dir", "cpu")
    shutil.copytree(tmp_path / "cpu", tmp_path / "ipu")
    start(*words, "--num-epochs", "2", "--run-dir", "on-cpu", "--model-dir", "cpu")
    start(*words, "--num-epochs", "2", "--run-dir", "on-ipu", "--model-dir", "ipu", sdk=sdk)

    ours, theirs = weights_in(tmp_path / "ipu"), weights_in(tmp_path / "cpu")
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-5, err_msg=name)
    rows = metrics_of(tmp_path / "on-ipu")
    for mine, other in zip(rows, metrics_of(tmp_path / "on-cpu")):
        assert mine == {name: pytest.approx(value, abs=1e-5) if name == "loss" or name.startswith("val_") else value
                        for name, value in other.items()}  # fmt: skip
    plan = json.loads((tmp_path / "on-ipu" / "plan.json").read_text())
    for instance in range(len(plan["placements"])):
        done = json.loads((tmp_path / "on-ipu" / f"instance-{instance:03}" / "done.json").read_text())
        assert done["metrics"]["val_loss"] == rows[-1]["val_loss"]
        calls = read_calls(tmp_path / "calls.jsonl", instance)
        configs = [given for name, given in calls if name == f"{IPU}.ipu_run_config.IPURunConfig"]
        assert [(one["num_replicas"], one["num_shards"]) for one in configs] == 2 * [made[1:]]
        assert configs[0]["iterations_per_loop"] == made[0]
        names = [name for name, _ in calls]
        is_pipelined, is_alone = made[2] > 1, plan["replicas"] == 1
        kind = "IPUPipelineEstimator" if is_pipelined else "IPUEstimator"
        assert names.count(f"{kind}.train") == names.count(f"{kind}.evaluate") == 1
        crossed = f"{IPU}.optimizers.cross_replica_optimizer.CrossReplicaOptimizer"
        assert names.count(crossed) == (0 if is_alone else 1)
        (steps,) = [given["steps"] for name, given in calls if name == f"{kind}.evaluate"]
        assert steps % (4 if is_pipelined else 1) == 0
        assert not {"Model.compile", "Model.fit"} & set(names)


def test_cosmoflow_runs_with_an_estimator(start: Start, read_calls: Any, tmp_path: Path) -> None:
    words = ["cosmoflow", "--use-estimator", "--pod", "4", "--num-instances", "2", "--side", "8", "--conv-size", "2"]
    words += ["--n-conv-layers", "2", "--n-train", "16", "--n-valid", "5", "--num-epochs", "1"]
    start(*words, "--run-dir", "run", sdk="3.4")
    for instance in range(2):
        done = json.loads((tmp_path / "run" / f"instance-00{instance}" / "done.json").read_text())
        assert done["updates"] == 4 and "val_mae" in done["metrics"]
        assert "IPUEstimator.train" in [name for name, _ in read_calls(tmp_path / "calls.jsonl", instance)]


@pytest.fixture()
def ipu(standin: Any) -> Any:
    standin("3.4")
    from tensorflow.python import ipu

    return ipu


def run_config(ipu: Any, **given: Any) -> Any:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = given.get("num_replicas", 1) * given.get("num_shards", 1)
    options = ipu.ipu_run_config.IPURunConfig(ipu_options=config, **given)
    return ipu.ipu_run_config.RunConfig(ipu_run_config=options)


def feed() -> Any:
    return tf.data.Dataset.from_tensors({"x": tf.ones([2, 3])}).repeat()


def model(ipu: Any, minimize: Callable[[Any], Any]) -> Callable[..., Any]:
    def model_fn(features: Any, mode: str) -> Any:
        loss = tf.reduce_mean(tf.keras.layers.Dense(1)(features["x"]))
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))

    return model_fn


def descent() -> Any:
    return tf.compat.v1.train.GradientDescentOptimizer(0.1)


def test_the_stand_in_refuses_what_the_sdk_does(ipu: Any) -> None:
    estimators, counted = ipu.ipu_estimator, tf.compat.v1.train.get_global_step
    with pytest.raises(TypeError, match="autosharding"):
        ipu.ipu_run_config.IPURunConfig(autosharding=True)
    with pytest.raises(ValueError, match="needs ipu_options"):
        ipu.ipu_run_config.IPURunConfig(num_replicas=2)
    with pytest.raises(ValueError, match=r"must be an ipu_run_config\.RunConfig"):
        estimators.IPUEstimator(lambda features, mode: None, config=tf.estimator.RunConfig())
    with pytest.raises(ValueError, match="takes no features or labels"):
        ipu.ipu_pipeline_estimator.IPUPipelineEstimator(lambda features, mode: None, config=run_config(ipu))
    config = ipu.config.IPUConfig()
    with pytest.raises(ValueError, match="select 0 IPUs, and IPURunConfig has 1 devices"):
        ipu.ipu_run_config.IPURunConfig(ipu_options=config)
    config.auto_select_ipus = 3
    with pytest.raises(ValueError, match="select 3 IPUs, and IPURunConfig has 4 devices"):
        ipu.ipu_run_config.IPURunConfig(ipu_options=config, num_replicas=2, num_shards=2)
    with pytest.raises(ValueError, match="prefetch_depth is 0"):
        ipu.ipu_run_config.IPURunConfig(ipu_options=config, prefetch_depth=0)
    with pytest.raises(ValueError, match=r"Missing train_op\."):
        estimators.IPUEstimatorSpec("train", loss=1.0)
    with pytest.raises(ValueError, match=r"Missing loss\."):
        estimators.IPUEstimatorSpec("train", train_op=1.0)
    with pytest.raises(ValueError, match="one of eval_metrics and eval_metric_ops"):
        estimators.IPUEstimatorSpec("eval", loss=1.0)
    with pytest.raises(ValueError, match="accumulate_outfeed cannot be passed"):
        ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(
            "train", [], gradient_accumulation_count=1, optimizer_function=descent, accumulate_outfeed=True
        )
    good = estimators.IPUEstimator(model(ipu, lambda loss: descent().minimize(loss)), config=run_config(ipu))
    with pytest.raises(AttributeError):
        good.export()
    good.train(feed, steps=1)
    counts = estimators.IPUEstimator(
        model(ipu, lambda loss: descent().minimize(loss, global_step=counted())), config=run_config(ipu)
    )
    with pytest.raises(ValueError, match="Illegal increment of the global_step"):
        counts.train(feed, steps=1)
    loops = estimators.IPUEstimator(
        model(ipu, lambda loss: descent().minimize(loss)), config=run_config(ipu, iterations_per_loop=2)
    )
    with pytest.raises(ValueError, match="must be a multiple of iterations_per_loop"):
        loops.train(feed, steps=3)
    with pytest.raises(RuntimeError, match="run dry"):
        loops.train(lambda: feed().take(1), steps=4)


def test_replicas_need_an_optimizer_that_crosses_them(ipu: Any) -> None:
    estimators = ipu.ipu_estimator
    apart = estimators.IPUEstimator(
        model(ipu, lambda loss: descent().minimize(loss)), config=run_config(ipu, num_replicas=2)
    )
    with pytest.raises(ValueError, match="not a valid replicated training graph"):
        apart.train(feed, steps=1)


def test_the_stand_in_counts_the_ipus_of_all_instances(ipu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import popdist.tensorflow

    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "4")
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "2")
    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config, ipus_per_replica=1, configure_device=True)
    options = ipu.ipu_run_config.IPURunConfig(ipu_options=config, num_replicas=2)
    crossed = ipu.optimizers.cross_replica_optimizer.CrossReplicaOptimizer
    ours = ipu.ipu_estimator.IPUEstimator(
        model(ipu, lambda loss: crossed(descent()).minimize(loss)),
        config=ipu.ipu_run_config.RunConfig(ipu_run_config=options),
    )
    with pytest.raises(ValueError, match="IPURunConfig has 2 devices, and 4 are configured"):
        ours.train(feed, steps=1)
