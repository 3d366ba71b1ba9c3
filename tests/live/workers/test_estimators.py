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
import tensorflow as tf

needs_estimators = pytest.mark.skipif(not hasattr(tf, "estimator"), reason="this TensorFlow has no Estimators")


def assert_same(mine: Path, other: Path, *, apart: str = "") -> None:
    ours, theirs = weights_in(mine), weights_in(other)
    assert ours.keys() == theirs.keys()
    for name in sorted(set(ours) - {apart}):
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5, err_msg=name)


def launch(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "POPDIST_"))}
    line = [sys.executable, "-m", "ipulaunch.launcher", *words, "--engine", "openmpi", "--oversubscribe"]
    return subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.skipif(hasattr(tf, "estimator"), reason="this TensorFlow has Estimators")
def test_the_launcher_ends_with_exit_code_4_without_estimators(tmp_path: Path) -> None:
    done = launch(tmp_path, "cifar10", "--api", "estimator", "--n-train", "8", "--n-valid", "8")
    assert done.returncode == 4
    assert "has no Estimators any more" in done.stderr


@needs_estimators
def test_two_instances_train_as_one(tmp_path: Path) -> None:
    words = ["cifar10", "--api", "replica-estimator", "--pod", "4", "--side", "16", "--n-train", "64", "--n-valid", "9"]
    words += ["--num-epochs", "2", "--batch-size", "4", "--batches-per-step", "2"]
    for count in ("1", "2"):
        run = ["--num-instances", count, "--run-dir", f"run{count}", "--model-dir", f"model{count}"]
        done = launch(tmp_path, *words, *run)
        assert done.returncode == 0, done.stderr
    assert_same(tmp_path / "model1", tmp_path / "model2")
    one, two = (json.loads((tmp_path / f"run{count}" / "summary.json").read_text())["metrics"] for count in (1, 2))
    assert one == pytest.approx(two, abs=1e-5)
    assert (tmp_path / "run2" / "instance-001" / "done.json").exists()


@needs_estimators
def test_cosmoflow_trains_with_an_estimator(tmp_path: Path) -> None:
    words = ["cosmoflow", "--use-estimator", "--pod", "4", "--num-instances", "1", "--side", "8", "--conv-size", "2"]
    words += ["--n-conv-layers", "2", "--n-train", "16", "--n-valid", "5", "--num-epochs", "1", "--run-dir", "run"]
    done = launch(tmp_path, *words, "--model-dir", "model")
    assert done.returncode == 0, done.stderr
    again = launch(tmp_path, *words[:-1], "again", "--model-dir", "model", "--test-only")
    assert again.returncode == 0, again.stderr
    first, second = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("run", "again"))
    assert first["metrics"]["val_mae"] == second["metrics"]["val_mae"] and "updates" not in second


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


@needs_estimators
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


@needs_estimators
def test_cosmoflow_runs_with_an_estimator(start: Start, read_calls: Any, tmp_path: Path) -> None:
    words = ["cosmoflow", "--use-estimator", "--pod", "4", "--num-instances", "2", "--side", "8", "--conv-size", "2"]
    words += ["--n-conv-layers", "2", "--n-train", "16", "--n-valid", "5", "--num-epochs", "1"]
    start(*words, "--run-dir", "run", sdk="3.4")
    for instance in range(2):
        done = json.loads((tmp_path / "run" / f"instance-00{instance}" / "done.json").read_text())
        assert done["updates"] == 4 and "val_mae" in done["metrics"]
        assert "IPUEstimator.train" in [name for name, _ in read_calls(tmp_path / "calls.jsonl", instance)]
