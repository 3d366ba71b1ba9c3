from __future__ import annotations

import json
import shlex
from typing import Any, Callable, List

import pytest

from ipulaunch.configs.settings.workloads import WORKLOADS, presets

Run = Callable[..., Any]

PIPELINE = "--config resnet50_16ipus_8k_bn_pipeline --dataset-path /data"
# What the CNN application does by default, where `ipulaunch cifar10` does something else.
DEFAULTS = (
    "--optimizer-params '{\"momentum\": 0}' --l2-regularization 0 --lr-schedule const"
    " --lr-schedule-params '{\"initial_learning_rate\": 0.0001}' --stochastic-rounding ON"
    " --optimizer-state-offloading True --eight-bit-transfer False --accelerator-side-preprocess False"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("python train.py configs/graphcore.yaml", "cosmoflow --config published_program", id="cosmoflow"),
        pytest.param(
            "poprun --num-replicas 2 --num-instances 2 --ipus-per-replica 1 --numa-aware 1"
            " python train.py configs/graphcore.yaml --use-estimator",
            "cosmoflow --ipus 2 --num-instances 2 --config published_program --use-estimator",
            id="cosmoflow-poprun",
        ),
        pytest.param(
            "poprun --num-instances=4 --num-replicas=4 --ipus-per-replica=4 --vipu-partition=p -vv"
            f" --mpi-global-args='--tag-output' python3 train.py {PIPELINE}",
            "imagenet --pod 16 --num-instances 4 --vipu-partition=p --vv --mpi-global-args=--tag-output " + PIPELINE,
            id="pipeline",
        ),
        pytest.param(
            "poprun --host a,b --num-ilds 2 --num-instances=2 --num-replicas=128 --numa-aware=no"
            " python3 train.py --config resnet8_test",
            "cifar10 --pod 128 --num-replicas 128 --hosts a,b --num-ilds 2 --num-instances 2"
            " --process-placement disabled --config resnet8_test",
            id="hosts",
        ),
        pytest.param(
            "python3 train.py --config resnet50_mlperf_pod16_bs20",
            "imagenet --pod 16 --engine direct --config resnet50_mlperf_pod16_bs20",
            id="replicas-of-one-process",
        ),
        pytest.param(
            "A=1 python3 validation.py --config resnet50_infer_bs16 --checkpoint-input-dir /c",
            "imagenet --ipus 1 --env A=1 --config resnet50_infer_bs16 --checkpoint-input-dir /c --training False",
            id="validation",
        ),
        pytest.param(
            "python3 train.py --config resnet8_test --training False --validation True --checkpoint-dir /c",
            "cifar10 --config resnet8_test --training False --validation True --checkpoint-input-dir /c",
            id="older-name-of-checkpoints",
        ),
        pytest.param(
            "python3 train.py --model cifar_resnet8 --num-epochs 6 --precision 16.16 --micro-batch-size 8"
            " --validation False --half-partials True --gradient-accumulation 8 --logs-per-epoch 1/2",
            "cifar10 --model cifar_resnet8 --num-epochs 6 --precision 16.16 --micro-batch-size 8 --validation False"
            f" --half-partials True --gradient-accumulation 8 --logs-per-epoch 1/2 {DEFAULTS}",
            id="defaults-of-the-application",
        ),
    ],
)
def test_published_line(line: str, expected: str, ipulaunch: Run) -> None:
    code, out, _ = ipulaunch("translate", "--", *shlex.split(line))
    assert (code, shlex.split(out)) == (0, ["ipulaunch", *shlex.split(expected)])
    assert ipulaunch("translate", line).out == out  # the line as one word, as copied from a page
    code, _, err = ipulaunch(*shlex.split(out)[1:], "--dry-run")
    assert code == 0, err


@pytest.mark.parametrize("preset", sorted(name for workload in WORKLOADS for name in presets(workload)))
def test_preset_names_its_data_set(preset: str, ipulaunch: Run) -> None:
    if preset in presets("cosmoflow"):
        pytest.skip("CosmoFlow's application has files in place of presets")
    words = shlex.split(ipulaunch("translate", "--", "python3", "train.py", "--config", preset).out)
    assert preset in presets(words[1])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python3 train.py --config resnet8_test --foo 3 4", ["warning: --foo 3 4 has no counterpart"]),
        ("python3 train.py mine.yaml", ["warning: mine.yaml has no counterpart", "--config-path"]),
        (
            "python3 train.py configs/graphcore.yaml -d --print-fom",
            ["note: -d is left out", "note: --print-fom is left"],
        ),
        ("python3 train.py a.yaml --data-benchmark", ["ipulaunch data bench cosmoflow"]),
        ("poprun --num-replicas 4 python3 train.py", ["without --num-instances, poprun starts one instance"]),
        ("poprun --numa-aware 1 python3 train.py --config resnet8_test", ["note: --numa-aware is left out"]),
        (f"poprun --num-replicas 4 python3 train.py {PIPELINE}", ["is 1 on the line, and the model uses 4"]),
        ("poprun --num-replicas 4 python3 train.py --num-replicas 2", ["that of poprun counts"]),
        ("python3 train.py", ["published defaults that differ from those of cifar10", "--optimizer-params"]),
    ],
)
def test_what_differs_is_said(line: str, said: List[str], ipulaunch: Run) -> None:
    code, out, err = ipulaunch("translate", "--", *shlex.split(line))
    assert code == 0 and len(out.splitlines()) == 1
    for words in said:
        assert words in err


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("", 2, "is not a line of the CNN application"),
        ("mpirun -n 2 prog", 2, "mpirun -n 2 prog is not a line"),
        ("python3 -m train", 2, "is not a line"),
        ("python3 mine.py --config resnet8_test", 2, "ipulaunch run launches any program"),
        ("poprun --num-replica=2 --bogus=1 python3 train.py", 2, "poprun has no option --bogus"),
        ("python3 train.py --dataset faces", 2, "--dataset is faces"),
        ("python3 train.py --precision 8.8", 6, "expected one of 16.16"),
        ("python3 train.py --config resnet8_tst", 6, "did you mean resnet8_test?"),
        ("python3 train.py --config resnet50_16ipus_16k_bn", 6, "did you mean resnet50_16ipus_16k_bn_pipeline?"),
    ],
)
def test_other_lines_are_refused(line: str, code: int, said: str, ipulaunch: Run) -> None:
    found = ipulaunch("translate", "--", *shlex.split(line))
    assert (found.code, found.out) == (code, "")
    assert said in found.err


def test_json(ipulaunch: Run) -> None:
    data = json.loads(ipulaunch("translate", "--json", "--", "python3", "train.py", "a.yaml", "--lr", "1").out)
    assert data["command"] == shlex.split(data["line"]) == ["ipulaunch", "cosmoflow", "--lr", "1"]
    assert data["notes"] == [] and len(data["warnings"]) == 1
