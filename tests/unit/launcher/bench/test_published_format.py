"""A specification with the constructs of the published ones, and numbers of its logs that were worked out by hand."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Dict, List, Optional

import pytest

from ipulaunch.configs.benchmarks import Benchmark, read_specification
from ipulaunch.launcher.bench.metrics import extract, lines_of
from ipulaunch.launcher.bench.variants import command_of, variants_of

SPEC = r"""---
common_options: &common_options
  data:
    throughput:
      reduction_type: 'mean'
      regexp: 'throughput: *(.*?) samples\/sec'
      skip: 2
    accuracy:
      reduction_type: 'final'
      regexp: 'accuracy: *(.*?) \%'
      skip: 1
    loss:
      reduction_type: 'final'
      regexp: 'loss: *(\d*\.\d*)'
      skip: 1
  output:
    - [samples/sec, 'throughput']
    - [accuracy, 'accuracy']
    - [loss, 'loss']

serving_options: &serving_options
  data:
    throughput:
      reduction_type: 'mean'
      regexp: 'throughput: *(.*?) samples\/sec'
      skip: 0
  output:
    - [samples/sec, 'throughput']

config_options: &config_options
  requirements_path: requirements.txt
  env:
    POPLAR_ENGINE_OPTIONS: '{"opt.enableMultiAccessCopies":"false"}'

train_pod4:
  <<: [*common_options, *config_options]
  description:
    A network,
    4 pipeline stages
  cmd: >-
    python3 train.py
        --config preset_pod4
        --dataset-path $DATASETS_DIR/images
        --validation false

train_pod4_conv:
  <<: [*common_options, *config_options]
  cmd: >-
    python3 train.py
        --wandb
        --wandb-run-name train_pod4_conv
        --dataset-path $DATASETS_DIR/images

serving_throughput:
  <<: [*serving_options, *config_options]
  parameters:
    batchsize: 1,32
  cmd: >-
    python3 request.py
        --config preset_bs{batchsize}
        --batch-size {batchsize}
        --num-threads 16

serving_latency:
  <<: *config_options
  data:
    latency:
        regexp: 'Latency for batch: *(.*?) ms'
        skip: 2
        reduction_type: 'mean'
  cmd: python3 request.py --verbose

table:
  <<: [*serving_options, *common_options]
  parameters:
    - [config, steps]
    - [base, 10]
    - [large, 20]
  cmd: mpirun --tag-output --np 4 python3 run.py --config {config} --steps {steps}
"""
TRAINING = b"""
epoch 1 throughput: 100.0 samples/sec accuracy: 10.5 % loss: 2.50
epoch 2 throughput: 300.0 samples/sec accuracy: 20.5 % loss: 1.75
epoch 3 throughput: 310.0 samples/sec accuracy: 30.5 % loss: 1.50\r
"""
ON_STDERR = b"warm-up throughput: 320.0 samples/sec\nlast throughput: 90.0 samples/sec\n"
LATENCIES = b"".join(b"Latency for batch: %.1f ms\n" % each for each in (90.0, 2.0, 3.0, 80.0, 4.0))

# Throughput: 90 and 100 are the two lowest of five; (300 + 310 + 320) / 3. The latency leaves out 90 and 80.
NUMBERS: Dict[str, Dict[str, Optional[float]]] = {
    "train_pod4": {"throughput": 310.0, "accuracy": 30.5, "loss": 1.5},
    "serving_throughput": {"throughput": (100 + 300 + 310 + 320 + 90) / 5},
    "serving_latency": {"latency": 3.0},
    "table": {"throughput": 4 * (100 + 300 + 310 + 320 + 90) / 5},  # each of four processes prints its own
}


@pytest.fixture()
def benchmarks(tmp_path: Path) -> Dict[str, Benchmark]:
    path = tmp_path / "benchmarks.yml"
    path.write_text(SPEC)
    found = read_specification([path])
    assert not found.errors and not found.wrong
    assert list(found.others) == ["common_options", "serving_options", "config_options"]
    return found.benchmarks


def test_variants_and_their_commands(benchmarks: Dict[str, Benchmark]) -> None:
    environ = {"DATASETS_DIR": "/data"}
    variants = [variant for benchmark in benchmarks.values() for variant in variants_of(benchmark)]
    lines: List[str] = [" ".join(command_of(variant, environ).argv) for variant in variants]
    assert dict(zip((variant.name for variant in variants), lines)) == {
        "train_pod4": "python3 train.py --config preset_pod4 --dataset-path /data/images --validation false",
        "train_pod4_conv": "python3 train.py --dataset-path /data/images",
        "serving_throughput_batchsize_1": "python3 request.py --config preset_bs1 --batch-size 1 --num-threads 16",
        "serving_throughput_batchsize_32": "python3 request.py --config preset_bs32 --batch-size 32 --num-threads 16",
        "serving_latency": "python3 request.py --verbose",
        "table_config_base_steps_10": "mpirun --tag-output --np 4 python3 run.py --config base --steps 10",
        "table_config_large_steps_20": "mpirun --tag-output --np 4 python3 run.py --config large --steps 20",
    }
    env = command_of(variants[0], environ).env
    assert env["POPLAR_ENGINE_OPTIONS"] == '{"opt.enableMultiAccessCopies":"false"}'


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_the_logs(benchmarks: Dict[str, Benchmark], name: str) -> None:
    logs = [io.BytesIO(LATENCIES if name == "serving_latency" else TRAINING), io.BytesIO(ON_STDERR)]
    processes = 4 if name == "table" else 1
    found = extract(benchmarks[name], {}, lines_of(logs), processes)
    assert found.problems == ()
    assert found.values == {metric: pytest.approx(value) for metric, value in NUMBERS[name].items()}
