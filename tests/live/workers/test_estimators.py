"""Estimators over real instances: on CPUs, and with the stand-in as the SDK through a strict poprun."""

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
from fixtures.trainings import LONGEST_S, SMOOTH, has_estimators, needs_estimators

FAKES = Path(__file__).parents[2] / "fakes"
IPU = "tensorflow.python.ipu"
SMALL = ["cifar10", "--side", "16", "--n-train", "32", "--batch-size", "2", "--dropout", "0"]
Start = Callable[..., None]


@pytest.fixture()
def start(tmp_path: Path, sdk_environment: Any) -> Start:
    """Runs ipulaunch on CPUs, or with the stand-in of an SDK; it must end with this exit code and say so much.

    Its networks are smooth.
    """

    def run(*words: str, sdk: str = "", code: int = 0, says: str = "") -> None:
        environ = sdk_environment(sdk or "3.4")
        environ["PYTHONPATH"] = os.pathsep.join([str(SMOOTH), *([environ["PYTHONPATH"]] if sdk else [])])
        environ["PATH"] = os.pathsep.join([str(FAKES), str(Path(sys.executable).parent), environ["PATH"]])
        line = [sys.executable, "-m", "ipulaunch.launcher", *words, "--rehearsal", "--oversubscribe"]
        line += [] if sdk else ["--engine", "openmpi"]
        done = subprocess.run(
            line, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        assert done.returncode == code and says in done.stderr, done.stderr

    return run


@pytest.mark.skipif(has_estimators(), reason="this TensorFlow has Estimators")
def test_the_launcher_ends_with_exit_code_4_without_estimators(start: Start) -> None:
    words = ["cifar10", "--api", "estimator", "--n-train", "8", "--n-valid", "8"]
    start(*words, code=4, says="has no Estimators any more")


def weights_in(directory: Path) -> Dict[str, np.ndarray]:
    import tensorflow as tf

    newest = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(directory)))
    return {name: newest.get_tensor(name) for name in newest.get_variable_to_shape_map()}


def assert_same_weights(found: Dict[str, np.ndarray], expected: Dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def assert_same_metrics(found: Path, expected: Path) -> None:
    """Those of two runs, but for the times that they took."""
    mine, theirs = (
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (found, expected)
    )
    assert len(mine) == len(theirs)
    for row, other in zip(mine, theirs):
        for name, value in other.items():
            if name == "loss" or name.startswith("val_"):
                assert row[name] == pytest.approx(value, abs=1e-5)
            elif name not in ("train_s", "samples_per_s"):
                assert row[name] == value


def assert_made(run: Path, calls_of: Callable[[int], List[Any]], loop: int, replicas: int, shards: int) -> None:
    """Every instance of a run made its Estimator with these numbers, and trained and validated with it once."""
    plan = json.loads((run / "plan.json").read_text())
    val_loss = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["val_loss"]
    for instance in range(len(plan["placements"])):
        done = json.loads((run / f"instance-{instance:03}" / "done.json").read_text())
        assert done["metrics"]["val_loss"] == val_loss
        calls = calls_of(instance)
        configs = [given for name, given in calls if name == f"{IPU}.ipu_run_config.IPURunConfig"]
        assert [(one["num_replicas"], one["num_shards"]) for one in configs] == 2 * [(replicas, shards)]
        assert configs[0]["iterations_per_loop"] == loop
        names = [name for name, _ in calls]
        kind = "IPUPipelineEstimator" if shards > 1 else "IPUEstimator"
        assert names.count(f"{kind}.train") == names.count(f"{kind}.evaluate") == 1
        crossed = f"{IPU}.optimizers.cross_replica_optimizer.CrossReplicaOptimizer"
        assert names.count(crossed) == (0 if plan["replicas"] == 1 else 1)
        (steps,) = [given["steps"] for name, given in calls if name == f"{kind}.evaluate"]
        assert steps % (4 if shards > 1 else 1) == 0
        assert not {"Model.compile", "Model.fit"} & set(names)


@pytest.mark.core
def test_two_instances_of_ipus_continue_a_training_as_those_of_cpus_do(
    start: Start, estimators: Path, read_calls: Any, tmp_path: Path
) -> None:
    shutil.copytree(estimators / "model-2-after-1", tmp_path / "ipu")
    words = [*SMALL, "--n-valid", "9", "--api", "replica-estimator", "--pod", "4", "--num-instances", "2"]
    words += ["--batches-per-step", "2", "--num-epochs", "2", "--run-dir", "run", "--model-dir", "ipu"]
    start(*words, sdk="3.4")
    with np.load(estimators / "model-2.npz") as expected:
        assert_same_weights(weights_in(tmp_path / "ipu"), dict(expected))
    assert_same_metrics(tmp_path / "run", estimators / "estimator-for-2-2")
    assert_made(tmp_path / "run", lambda instance: read_calls(tmp_path / "calls.jsonl", instance), 2, 4, 1)


# The API and its options, the SDKs, and what its Estimator is made with: iterations of a loop, replicas, shards.
PIPELINED = ["--api", "pipeline-estimator", "--pod", "4", "--gradient-accumulation-count", "4"]
KINDS: Dict[str, Any] = {
    "plain": (["--api", "estimator", "--batches-per-step", "2"], ["3.4"], (2, 1, 1)),
    "replicated": (
        ["--api", "replica-estimator", "--pod", "4", "--num-instances", "2"], ["2.6", "3.0", "3.1"], (4, 4, 1),
    ),
    "replicas of their own": (
        ["--api", "replica-estimator", "--ipus", "2", "--num-instances", "2"], ["3.4"], (8, 2, 1),
    ),
    "pipelined": ([*PIPELINED, "--num-instances", "1"], ["3.1"], (8, 2, 2)),
    "pipelines of their own": ([*PIPELINED, "--num-instances", "2"], ["2.6", "3.0", "3.1", "3.4"], (8, 2, 2)),
}  # fmt: skip
VARIANTS = {f"{name}, {sdk}": (options, sdk, made) for name, (options, sdks, made) in KINDS.items() for sdk in sdks}


@needs_estimators
@pytest.mark.night
@pytest.mark.parametrize(("options", "sdk", "made"), VARIANTS.values(), ids=VARIANTS)
def test_ipus_continue_a_training_as_cpus_do(
    options: List[str], sdk: str, made: Any, start: Start, read_calls: Any, tmp_path: Path
) -> None:
    """At night: the same path as with two instances above, with other Estimators and SDKs."""
    words = [*SMALL, *options, "--n-valid", "11"]
    start(*words, "--num-epochs", "1", "--run-dir", "first", "--model-dir", "cpu")
    shutil.copytree(tmp_path / "cpu", tmp_path / "ipu")
    start(*words, "--num-epochs", "2", "--run-dir", "on-cpu", "--model-dir", "cpu")
    start(*words, "--num-epochs", "2", "--run-dir", "on-ipu", "--model-dir", "ipu", sdk=sdk)
    assert_same_weights(weights_in(tmp_path / "ipu"), weights_in(tmp_path / "cpu"))
    assert_same_metrics(tmp_path / "on-ipu", tmp_path / "on-cpu")
    assert_made(tmp_path / "on-ipu", lambda instance: read_calls(tmp_path / "calls.jsonl", instance), *made)


COSMOFLOW = [
    *("cosmoflow", "--use-estimator", "--pod", "4", "--side", "8", "--conv-size", "2", "--n-conv-layers", "2"),
    *("--n-train", "16", "--n-valid", "5", "--num-epochs", "1"),
]


@needs_estimators
@pytest.mark.night
def test_cosmoflow_trains_with_an_estimator_and_is_tested(start: Start, tmp_path: Path) -> None:
    """At night: CIFAR-10 goes the same way, and is tested from its directory in process."""
    words = [*COSMOFLOW, "--num-instances", "1", "--model-dir", "model"]
    start(*words, "--run-dir", "run")
    start(*words, "--run-dir", "again", "--test-only")
    first, second = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("run", "again"))
    assert first["metrics"]["val_mae"] == second["metrics"]["val_mae"] and "updates" not in second


@needs_estimators
@pytest.mark.night
def test_cosmoflow_runs_with_an_estimator(start: Start, read_calls: Any, tmp_path: Path) -> None:
    """At night: CIFAR-10 goes the same way."""
    start(*COSMOFLOW, "--num-instances", "2", "--run-dir", "run", sdk="3.4")
    for instance in range(2):
        done = json.loads((tmp_path / "run" / f"instance-00{instance}" / "done.json").read_text())
        assert done["updates"] == 4 and "val_mae" in done["metrics"]
        assert "IPUEstimator.train" in [name for name, _ in read_calls(tmp_path / "calls.jsonl", instance)]
