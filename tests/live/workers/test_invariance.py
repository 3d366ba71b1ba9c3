"""One process against many: the oracle of everything else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

pytestmark = pytest.mark.core

ONE_WEIGHT = Path(__file__).parent / "programs" / "one_weight.py"
SIZES = {
    "data.n_train": 40,  # 2 updates of 16, and 8 samples left out
    "data.n_valid": 13,  # divides by no number of replicas
    "training.gradient_accumulation_count": 2,
    "training.micro_batch_size": 2,
}
# A network with dropout, and one with batch statistics.
COSMOFLOW = {"data.side": 8, "model.conv_size": 2, "model.n_conv_layers": 2, "model.dropout": 0.5}
CIFAR10 = {"data.synthetic_data": "cpu", "model.name": "cifar_resnet8", "training.num_epochs": 2}

Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: str, instances: int) -> Path:
        directory = tmp_path / f"run-{instances}"
        head = [sys.executable, "-m", "ipulaunch.launcher", *arguments[:1], "--pod", "4", "--engine", "openmpi"]
        options = ["--oversubscribe", "--num-instances", str(instances), "--run-dir", str(directory)]
        command = [*head, *options, *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return directory

    return run


@pytest.mark.parametrize("instances", [1, 2, 4])
def test_one_weight_takes_the_same_step_everywhere(instances: int, run: Run, tmp_path: Path) -> None:
    run("run", "--", sys.executable, str(ONE_WEIGHT), str(tmp_path), instances=instances)
    for instance in range(instances):
        weights = json.loads((tmp_path / f"{instances}-{instance}.json").read_text())
        assert weights == {"1": pytest.approx(0.3111111, abs=1e-6), "4": pytest.approx(0.3111111, abs=1e-6)}


def state(directory: Path) -> Dict[str, Any]:
    (checkpoint,) = (directory / "checkpoints").glob("update-00000004")
    with np.load(checkpoint / "state.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def curve(directory: Path) -> Any:
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{name: row[name] for name in row if name not in ("train_s", "samples_per_s")} for row in rows]


@pytest.mark.parametrize(
    ("workload", "job", "counts"),
    [("cosmoflow", COSMOFLOW, (1, 2, 4)), ("cifar10", CIFAR10, (1, 4))],
    ids=["cosmoflow-on-1-2-4", "cifar10-on-1-4"],
)
def test_training_has_the_same_bits_on_any_number_of_instances(
    workload: str, job: Dict[str, Any], counts: Tuple[int, ...], run: Run
) -> None:
    settings = [word for key, value in {**SIZES, **job}.items() for word in ("--set", f"{key}={value}")]
    one, *others = (run(workload, *settings, instances=count) for count in counts)
    assert [row["update"] for row in curve(one)] == [2, 4, 2, 4]  # training, then validation
    for other in others:
        assert curve(other) == curve(one)
        expected, found = state(one), state(other)
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert np.array_equal(value, found[name]), name
