"""From `ipulaunch` through a strict poprun and real instances to the records, with the stand-in as the SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest

from ipulaunch.topology import table
from ipulaunch.topology.batch import Batch
from ipulaunch.topology.plan import Placement, Plan

pytestmark = pytest.mark.mpi

FAKES = Path(__file__).parents[1] / "fakes"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def with_poprun(environ: Dict[str, str]) -> Dict[str, str]:
    """Our poprun first on the PATH, and this Python, whose mpirun it takes, next."""
    return {**environ, "PATH": os.pathsep.join([str(FAKES), str(Path(sys.executable).parent), environ["PATH"]])}


@pytest.fixture()
def start(tmp_path: Path) -> Run:
    def run(*words: str, environ: Dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=with_poprun(environ), capture_output=True, text=True, timeout=120, check=False
        )

    return run


def expected_calls(sdk: str) -> List[Any]:
    """The tiny job on one of two instances with two replicas each; sums travel as bytes, 8 for each number."""
    popdist_sum = "tensorflow.python.ipu.distributed.host_collective_ops.allreduce"
    horovod_sum = "tensorflow.python.ipu.horovod.allreduce"

    def summed(numbers: int) -> Any:
        value = f"int32[2, {8 * numbers}]"
        if sdk == "2.6":
            return (horovod_sum, {"tensor": value, "op": "Sum"})
        return (popdist_sum, {"value": value, "reduce_op": "ReduceOp.SUM"})

    accumulation = {
        "gradient_accumulation_steps_per_replica": 2,
        "gradient_accumulation_reduction_method": "GradientAccumulationReductionMethod.RUNNING_MEAN",
    }
    compiled = {"model": "cosmoflow", "optimizer": "Adadelta", "loss": "function", "metrics": ["MeanOf"]}
    fit: Dict[str, Any] = {"model": "cosmoflow", "x": "Dataset", "epochs": 2, "verbose": 0}
    fit.update(callbacks=["MeanOverInstances", "_Progress"], steps_per_epoch=8)  # 2 updates x 2 steps x 2 replicas
    validated = ("Model.predict", {"model": "validator", "x": "Dataset", "verbose": 0})
    replication = ("Model.set_replication_options", {"replicated_metric_reduction_method": "MEAN"})
    return [
        ("IPUConfig", {}),
        ("popdist.isPopdistEnvSet", {}),
        ("tensorflow.python.ipu.horovod.init" if sdk == "2.6" else "popdist.init", {}),
        (
            "popdist.tensorflow.set_ipu_config",
            {"config": "IPUConfig", "ipus_per_replica": 1, "configure_device": True},
        ),
        ("IPUConfig.configure_ipu_system", {}),
        ("PopDistStrategy", {}),
        ("Model.set_gradient_accumulation_options", accumulation),
        *([replication] if sdk >= "3.1" else []),
        ("Model.compile", {**compiled, "steps_per_execution": 4}),
        ("Model.fit", fit),
        summed(2),  # loss and mae of the first epoch
        ("Model.compile", {"model": "validator", "steps_per_execution": 2}),
        validated,
        summed(3),  # with the weight of the samples
        summed(2),
        validated,
        summed(3),
        summed(1),  # bad records that were replaced
        summed(2),  # samples per second of each instance
    ]


@pytest.mark.parametrize("sdk", ["2.6", "3.4"])
def test_two_instances_train_as_the_cpus_do(
    sdk: str,
    start: Run,
    sdk_environment: Any,
    tiny_options: List[str],
    read_training: Any,
    read_calls: Any,
    on_cpus: Any,
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-m", "ipulaunch.launcher", "cosmoflow", "--pod", "4", "--num-instances", "2"]
    done = start(*words, "--oversubscribe", "--run-dir", "run", *tiny_options, environ=sdk_environment(sdk))
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    for instance in range(2):
        assert json.loads((run / f"instance-00{instance}" / "done.json").read_text())["updates"] == 4
        assert read_calls(tmp_path / "calls.jsonl", instance) == expected_calls(sdk)
    assert len(json.loads((run / "summary.json").read_text())["samples_per_s_by_instance"]) == 2

    found, expected = read_training(run), on_cpus(4)
    assert found.state.keys() == expected.state.keys()
    for name, value in expected.state.items():
        np.testing.assert_allclose(found.state[name], value, atol=1e-5, err_msg=name)
    names = [name for name in expected.curve[0] if sdk >= "3.1" or name.startswith("val_")]
    for mine, theirs in zip(found.curve, expected.curve):
        assert {name: mine[name] for name in names} == pytest.approx({name: theirs[name] for name in names}, rel=1e-5)


def test_poprun_without_the_sdk_ends_with_the_fix(start: Run, sdk_environment: Any, tiny_options: List[str]) -> None:
    environ = sdk_environment("3.4")
    del environ["PYTHONPATH"]
    words = [sys.executable, "-m", "ipulaunch.launcher", "cosmoflow", "--pod", "4", "--num-instances", "1"]
    done = start(*words, "--run-dir", "run", *tiny_options, environ=environ)
    assert done.returncode == 4
    assert "the Poplar SDK's TensorFlow is not here" in done.stderr
    assert "hint: source <sdk>/enable" in done.stderr


@pytest.mark.parametrize(
    ("sdk", "words", "why"),
    [
        ("3.4", ["--num-replica=2", "true"], "has no option --num-replica=2"),
        ("3.4", ["--num=ilds", "4", "true"], "has no option --num=ilds"),
        ("3.4", ["--numa-aware=yes", "true"], "has no option --numa-aware"),
        ("3.0", ["--process-placement=spreadnuma", "true"], "has no option --process-placement"),
        ("3.1", ["--vipu-allocation=a", "true"], "has no option --vipu-allocation"),
        ("3.2", ["--vipu-cluster=a", "true"], "has no option --vipu-cluster"),
        ("3.1", ["--allow-run-as-root=yes", "true"], "has no option --allow-run-as-root"),
        ("3.4", ["--offline-mode=maybe", "true"], "--offline-mode cannot be 'maybe'"),
        ("3.4", ["--num-replicas=two", "true"], "--num-replicas cannot be 'two'"),
        ("3.4", ["--num-replicas=2", "--num-replicas=4", "true"], "--num-replicas is given twice"),
        ("3.4", ["--num-replicas=4", "--num-instances=3", "true"], "4 replicas cannot be divided evenly among 3"),
        ("3.4", ["--num-instances=2", "true"], "1 replicas cannot be divided evenly among 2"),
        ("3.4", ["--num-replicas=2", "--num-ilds=2", "true"], "1 instances cannot be divided evenly among 2 IPU-Link"),
        ("3.4", ["--host=a,b", "true"], "1 instances cannot be divided evenly among 2 hosts"),
        ("3.4", ["--num-replicas=3", "true"], "not a power of two"),
        ("3.4", ["--ipus-per-replica=32", "true"], "not a power of two"),
        ("3.4", ["--num-replicas"], "--num-replicas has no value"),
        ("3.4", ["--num-replicas=2"], "there is no program to run"),
    ],
)
def test_the_strict_poprun_refuses(sdk: str, words: List[str], why: str, start: Run, sdk_environment: Any) -> None:
    done = start("poprun", *words, environ=sdk_environment(sdk))
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_an_instance_finds_its_place_in_the_environment(start: Run, sdk_environment: Any) -> None:
    root = ["--allow-run-as-root=yes"] if os.geteuid() == 0 else []
    options = ["--num-replicas=4", "--num-instances=2", "--executable-cache-path=/cache", "--print-topology=yes"]
    show = "import os, json; os.write(1, (json.dumps(dict(os.environ)) + chr(10)).encode())"
    done = start("poprun", *options, *root, sys.executable, "-c", show, environ=sdk_environment("3.4"))
    assert done.returncode == 0, done.stderr
    placements = tuple(Placement(i, "localhost", i, (0,), 1, str(i), 2 * i) for i in range(2))
    plan = Plan("program", "pod4", 4, 1, 1, Batch(1, 4, 1), placements, False)
    lines = done.stdout.splitlines()
    assert "\n".join(line for line in lines if not line.startswith("[")) == table.draw(plan)
    for instance in range(2):
        (line,) = [line for line in lines if line.startswith(f"[1,{instance}]<stdout>:")]
        found = json.loads(line.partition(">:")[2])
        assert {name: value for name, value in found.items() if name.startswith("POPDIST_")} == {
            "POPDIST_NUM_TOTAL_REPLICAS": "4",
            "POPDIST_NUM_IPUS_PER_REPLICA": "1",
            "POPDIST_NUM_LOCAL_REPLICAS": "2",
            "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
            "POPDIST_REPLICA_INDEX_OFFSET": str(2 * instance),
            "POPDIST_LOCAL_INSTANCE_INDEX": str(instance),
            "POPDIST_EXECUTABLE_CACHE_PATH": "/cache",
        }


def test_poprun_ends_as_its_instances_do(start: Run, sdk_environment: Any) -> None:
    root = ["--allow-run-as-root=yes"] if os.geteuid() == 0 else []
    assert start("poprun", *root, "/bin/sh", "-c", "exit 5", environ=sdk_environment("3.4")).returncode == 5
