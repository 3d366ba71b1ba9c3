"""From `ipulaunch` through a strict poprun and real instances to the records, with the stand-in as the SDK."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import numpy as np
import pytest

from ipulaunch.launcher.show import picture
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.plan import Placement, Plan

FAKES = Path(__file__).parents[2] / "fakes"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def with_poprun(environ: Dict[str, str]) -> Dict[str, str]:
    """Our poprun first on the PATH, and this Python, whose mpirun it takes, next."""
    return {**environ, "PATH": os.pathsep.join([str(FAKES), str(Path(sys.executable).parent), environ["PATH"]])}


@pytest.fixture()
def start(tmp_path: Path) -> Run:
    def run(*words: str, environ: Dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=tmp_path, env=with_poprun(environ), capture_output=True, text=True, timeout=1800, check=False
        )

    return run


def expected_calls(sdk: str) -> List[Any]:
    """The tiny job on each of two instances with two replicas each, without the sums over instances."""
    accumulation = {
        "gradient_accumulation_steps_per_replica": 2,
        "gradient_accumulation_reduction_method": "GradientAccumulationReductionMethod.RUNNING_MEAN",
        "gradient_accumulation_optimizer_kwargs": {"offload_weight_update_variables": False},
    }
    compiled = {"model": "cosmoflow", "optimizer": "Adadelta", "loss": "function", "metrics": ["MeanOf"]}
    fit: Dict[str, Any] = {"model": "cosmoflow", "x": "Dataset", "epochs": 2, "verbose": 0}
    fit.update(callbacks=["WithoutLossScale", "Progress"], steps_per_epoch=8)  # 2 updates x 2 steps x 2 replicas
    return [
        ("popdist.isPopdistEnvSet", {}),
        ("tensorflow.python.ipu.horovod.init" if sdk == "2.6" else "popdist.init", {}),
        ("popdist.isPopdistEnvSet", {}),
        ("IPUConfig", {}),
        ("IPUConfig.allow_recompute =", {"value": False}),
        (
            "IPUConfig.convolutions.poplar_options =",
            {"value": {"gatherConvOutput": "false", "enableConvDithering": "false"}},
        ),
        ("IPUConfig.matmuls.poplar_options =", {"value": {}}),
        ("IPUConfig.compilation_poplar_options =", {"value": {"target.deterministicWorkers": "portable"}}),
        ("IPUConfig.scheduling.algorithm =", {"value": "SchedulingAlgorithm.CHOOSE_BEST"}),
        ("IPUConfig.floating_point_behaviour.inv =", {"value": False}),
        ("IPUConfig.floating_point_behaviour.div0 =", {"value": False}),
        ("IPUConfig.floating_point_behaviour.oflo =", {"value": False}),
        ("IPUConfig.floating_point_behaviour.nanoo =", {"value": False}),
        ("IPUConfig.floating_point_behaviour.esr =", {"value": "StochasticRoundingBehaviour.OFF"}),
        ("IPUConfig.norms.use_stable_statistics =", {"value": False}),
        ("IPUConfig.norms.experimental.distributed_batch_norm_replica_group_size =", {"value": 1}),
        ("IPUConfig.experimental.enable_prng_stability =", {"value": False}),
        ("IPUConfig.device_connection.enable_remote_buffers =", {"value": True}),
        ("IPUConfig.device_connection.type =", {"value": "DeviceConnectionType.ON_DEMAND"}),
        (
            "popdist.tensorflow.set_ipu_config",
            {"config": "IPUConfig", "ipus_per_replica": 1, "configure_device": True},
        ),
        ("IPUConfig.configure_ipu_system", {}),
        ("tensorflow.python.ipu.utils.reset_ipu_seed", {"seed": 0, "experimental_identical_replicas": True}),
        ("PopDistStrategy", {}),
        ("Model.set_gradient_accumulation_options", accumulation),
        ("Model.compile", {**compiled, "steps_per_execution": 4}),
        ("Model.fit", fit),
        ("Model.compile", {"model": "validator", "steps_per_execution": 2}),
        *2 * [("Model.predict", {"model": "validator", "x": "Dataset", "verbose": 0})],
    ]


def without_sums(calls: List[Any]) -> List[Any]:
    """What an instance called beside the sums over hosts, which all go through one function of its SDK."""
    sums = {json.dumps([name, *given]) for name, given in calls if name.endswith("reduce")}
    assert len(sums) == 1
    return [call for call in calls if not call[0].endswith("reduce")]


@pytest.mark.parametrize(
    "sdk",
    [
        *(pytest.param(sdk, marks=pytest.mark.night) for sdk in ("2.6", "3.0", "3.1")),
        pytest.param("3.4", marks=pytest.mark.core),
    ],
)
def test_two_instances_train_as_the_cpus_do(
    sdk: str,
    start: Run,
    sdk_environment: Any,
    tiny_options: List[str],
    read_training: Any,
    read_calls: Any,
    one_and_many: Path,
    tmp_path: Path,
) -> None:
    """SDKs before 3.4 at night: the same path, and backends/ipu/test_backend.py has their calls in process."""
    words = [sys.executable, "-m", "ipulaunch.launcher", "cosmoflow", "--pod", "4", "--num-instances", "2"]
    done = start(*words, "--oversubscribe", "--run-dir", "run", *tiny_options, environ=sdk_environment(sdk))
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    for instance in range(2):
        assert json.loads((run / f"instance-00{instance}" / "done.json").read_text())["updates"] == 4
        assert without_sums(read_calls(tmp_path / "calls.jsonl", instance)) == expected_calls(sdk)
    summary = json.loads((run / "summary.json").read_text())
    assert len(summary["samples_per_s_by_instance"]) == 2 and summary["energy"]["ipu_hours"]["low"] > 0
    assert "  energy " in done.stderr

    found, expected = read_training(run), read_training(one_and_many / "tiny-of-4-replicas-1")
    assert len(found.state) == len(expected.state)
    for mine, theirs in zip(found.state, expected.state):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    for mine, theirs in zip(found.curve, expected.curve):
        for name in theirs:
            if name != "checkpoint":
                assert mine[name] == pytest.approx(theirs[name], rel=1e-5)


# Whole workloads, as they are typed, with few samples.
PIPELINED = "MNIST on 2 pipelines"
WORKLOADS = {
    PIPELINED: (
        *("mnist", "--pod", "4", "--pipelining", "--num-instances", "1", "--rehearsal", "--micro-batch-size", "8"),
        *("--n-train", "256", "--n-valid", "50", "--validation-micro-batch-size", "8", "--num-epochs", "1"),
    ),
    "cosmoflow on a POD16": (
        *("cosmoflow", "--pod", "16", "--rehearsal", "--num-instances", "2", "--n-train", "32", "--n-valid", "5"),
        *("--num-epochs", "1", "--side", "16", "--conv-size", "2", "--n-conv-layers", "3"),
    ),
    "ResNet-50 on 4 IPUs x 4 replicas": (
        *("imagenet", "--pod", "16", "--config", "resnet50_16ipus_8k_bn_pipeline", "--rehearsal"),
        *("--num-instances", "1", "--num-epochs", "1", "--n-train", "128", "--n-valid", "10"),
        *("--micro-batch-size", "4"),
    ),
    "CIFAR ResNet-8 with batch norm, padded, in 16 bits": (
        *("cifar10", "--pod", "4", "--rehearsal", "--num-instances", "2", "--model", "cifar_resnet8"),
        *("--synthetic-data", "cpu", "--n-train", "41", "--n-valid", "13", "--num-epochs", "1", "--remainder", "pad"),
        *("--precision", "16.16", "--stochastic-rounding", "on", "--loss-scaling", "128", "--micro-batch-size", "2"),
    ),
    "MNIST on one IPU": (*("mnist", "--rehearsal", "--n-train", "256", "--n-valid", "100", "--num-epochs", "1"),),
}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(*[words], id=name, marks=[pytest.mark.night][name == PIPELINED :])
        for name, words in WORKLOADS.items()
    ],
)
def test_a_workload_runs_from_the_command_line_to_its_done_record(
    words: Sequence[str], start: Run, sdk_environment: Any, read_calls: Any, tmp_path: Path
) -> None:
    """At night all but the pipeline: the same path with other networks, which other tests train."""
    launcher = [sys.executable, "-m", "ipulaunch.launcher"]
    done = start(*launcher, *words, "--oversubscribe", "--run-dir", "run", environ=sdk_environment("3.4"))
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    for instance in range(len(plan["placements"])):
        record = json.loads((tmp_path / "run" / f"instance-{instance:03}" / "done.json").read_text())
        assert record["updates"] >= 1 and "val_loss" in record["metrics"]
        names = [name for name, _ in read_calls(tmp_path / "calls.jsonl", instance)]
        assert {"PopDistStrategy", "Model.fit", "Model.predict"} <= set(names)
        assert names.count("Model.set_pipelining_options") == (2 if plan["ipus_per_replica"] > 1 else 0)


@pytest.mark.night
def test_compiling_alone_trains_nothing(
    start: Run, sdk_environment: Any, read_calls: Any, tiny_options: List[str], tmp_path: Path
) -> None:
    """At night: backends/ipu/test_pipeline.py compiles alone in process."""
    words = [sys.executable, "-m", "ipulaunch.launcher", "cosmoflow", "--pod", "4", "--num-instances", "2"]
    words += ["--compile-only", "--executable-cache-path", "/cache", "--vipu-partition", "mine", *tiny_options]
    done = start(*words, "--oversubscribe", "--run-dir", "run", environ=sdk_environment("3.4"))
    assert done.returncode == 0, done.stderr
    assert "no IPU is attached, so without effect: --vipu-partition" in done.stderr
    assert "compiled    training and validation" in done.stderr
    command = (tmp_path / "run" / "command.txt").read_text()
    assert "--offline-mode=yes" in command and "--vipu-partition" not in command
    assert not list((tmp_path / "run").glob("checkpoints/update-*"))
    for instance in range(2):
        names = [name for name, _ in read_calls(tmp_path / "calls.jsonl", instance)]
        assert (names.count("Model.fit"), names.count("Model.predict")) == (1, 1)


@pytest.mark.night
def test_poprun_without_the_sdk_ends_with_the_fix(start: Run, sdk_environment: Any, tiny_options: List[str]) -> None:
    """At night: a worker without the SDK says the same by itself, backends/ipu/test_worker.py."""
    environ = sdk_environment("3.4")
    del environ["PYTHONPATH"]
    words = [sys.executable, "-m", "ipulaunch.launcher", "cosmoflow", "--pod", "4", "--num-instances", "1"]
    done = start(*words, "--run-dir", "run", *tiny_options, environ=environ)
    assert done.returncode == 4
    assert "the Poplar SDK's TensorFlow is not here" in done.stderr
    assert "hint: enable the SDK: source <sdk>/enable.sh" in done.stderr


@pytest.mark.parametrize(
    ("sdk", "words", "why"),
    [
        ("3.4", ["--num-replica=2", "true"], "has no option --num-replica=2"),
        ("3.4", ["--num=ilds", "4", "true"], "has no option --num=ilds"),
        ("3.4", ["--numa-aware=yes", "true"], "has no option --numa-aware"),
        ("3.0", ["--process-placement=spreadnuma", "true"], "has no option --process-placement"),
        ("3.1", ["--vipu-allocation=a", "true"], "has no option --vipu-allocation"),
        ("3.1", ["--allow-run-as-root=yes", "true"], "has no option --allow-run-as-root"),
        ("3.4", ["--offline-mode=maybe", "true"], "--offline-mode cannot be 'maybe'"),
        ("3.4", ["--num-replicas=two", "true"], "--num-replicas cannot be 'two'"),
        ("3.4", ["--num-replicas=2", "--num-replicas=4", "true"], "--num-replicas is given twice"),
        ("3.4", ["--num-replicas=4", "--num-instances=3", "true"], "4 replicas cannot be divided evenly among 3"),
        ("3.4", ["--num-instances=2", "true"], "1 replicas cannot be divided evenly among 2"),
        ("3.4", ["--num-replicas=2", "--num-ilds=2", "true"], "1 instances cannot be divided evenly among 2 IPU-Link"),
        ("3.4", ["--host=a,b", "true"], "1 instances cannot be divided evenly among 2 hosts"),
        ("3.4", ["--host=h[0-1]", "true"], "1 instances cannot be divided evenly among 2 hosts"),
        ("3.4", ["--host=h[1-0]", "true"], "--host has no range 1-0"),
        ("3.4", ["--host=h[0-1", "true"], "--host cannot be 'h[0-1'"),
        ("3.4", ["--only-output-from-instance=1", "true"], "there is no instance 1"),
        ("3.4", ["--import-config=/none", "true"], "/none cannot be read"),
        ("3.4", ["--export-config=/dev/null", "true"], "/dev/null is there: --overwrite-config is off"),
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
    assert "\n".join(line for line in lines if not line.startswith("[")) == picture.draw_poprun_table(plan)
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


ROOT = ["--allow-run-as-root=yes"] if os.geteuid() == 0 else []


def test_ranges_of_hosts_are_those_that_we_write(start: Run, sdk_environment: Any) -> None:
    names = [f"10.1.3.{number}" for number in (101, 102, 103)] + ["h08", "h09", "h10", "last"]
    options = ["--num-replicas=8", "--num-instances=8", "--print-topology=yes"]
    hosts = [*names, "h2"]
    done = start(
        "poprun", *options, f"--host={hostlist.render(hosts)}", "true",
        environ={**sdk_environment("3.4"), "STANDIN_MPIRUN": "/bin/echo"},
    )  # fmt: skip
    assert "[101-103]" in hostlist.render(hosts)
    assert all(f"--host {name}:1 " in done.stdout for name in hosts), done


def test_only_one_instance_is_heard(start: Run, sdk_environment: Any) -> None:
    options = ["--num-replicas=2", "--num-instances=2", "--only-output-from-instance=1", *ROOT]
    done = start("poprun", *options, "/bin/sh", "-c", "echo out; echo err >&2", environ=sdk_environment("3.4"))
    assert (done.returncode, done.stdout.replace(": ", ":")) == (0, "[1,1]<stdout>:out\n")
    assert "[1,1]<stderr>:err" in done.stderr.replace(": ", ":") and "[1,0]" not in done.stderr


def test_options_are_kept_in_a_file_and_read_again(start: Run, sdk_environment: Any, tmp_path: Path) -> None:
    environ = sdk_environment("3.4")
    kept = ["--num-replicas=4", "--num-instances=2", "--mpi-local-args=-x A", *ROOT]
    assert start("poprun", *kept, "--export-config=kept", "true", environ={**environ, "A": "1"}).returncode == 0
    assert "num-replicas" in (tmp_path / "kept").read_text()
    show = 'echo "$POPDIST_NUM_TOTAL_REPLICAS $POPDIST_NUM_LOCAL_REPLICAS $A"'
    words = ["--import-config=kept", "--num-instances=1", "/bin/sh", "-c", show]
    done = start("poprun", *words, environ={**environ, "A": "1"})
    assert done.stdout.replace(": ", ":") == "[1,0]<stdout>:4 4 1\n"  # the command line wins
    again = ["--export-config=kept", *ROOT, "true"]
    assert start("poprun", *again, environ=environ).returncode == 2
    assert start("poprun", "--overwrite-config=yes", *again, environ=environ).returncode == 0
    assert "num-replicas" not in (tmp_path / "kept").read_text()


@pytest.mark.parametrize("sdk", ["2.6", "3.4"])
def test_a_cluster_is_documented_to_the_last(sdk: str, start: Run, sdk_environment: Any) -> None:
    environ = {**sdk_environment(sdk), "STANDIN_MPIRUN": "/bin/echo"}
    assert start("poprun", "--vipu-cluster=c", "true", environ=environ).returncode == 0


def test_poprun_ends_as_its_instances_do(start: Run, sdk_environment: Any) -> None:
    root = ["--allow-run-as-root=yes"] if os.geteuid() == 0 else []
    assert start("poprun", *root, "/bin/sh", "-c", "exit 5", environ=sdk_environment("3.4")).returncode == 5
