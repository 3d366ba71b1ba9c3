"""Whole trainings on the stand-in of every SDK against the CPU backend: replicas, precisions and remainders in turn.

All run at night: each takes seconds to trace, and test_backend.py, test_pipeline.py and test_precision.py
train the same paths by day.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

import numpy as np
import pytest
from fixtures.plans import ipu_backend, plan_of

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology import Batch
from ipulaunch.workers.backends.collective import Alone
from ipulaunch.workers.backends.cpu.backend import CpuBackend
from ipulaunch.workers.instance import Instance
from ipulaunch.workers.lifecycle.records import Records
from ipulaunch.workers.lifecycle.stopping import StopRequest
from ipulaunch.workers.run import run_instance
from ipulaunch.workers.state.checkpoints import load

pytestmark = pytest.mark.usefixtures("smooth")
Install = Callable[..., Any]
SDKS, BITS, REMAINDERS = ("2.6", "3.0", "3.1", "3.4"), ("32.32", "16.32", "16.16"), ("drop", "repeat", "pad")
IMAGES = ("data.synthetic_data=cpu", "data.augment=false", "schedule.name=const", "schedule.warmup_epochs=0")
SMALL = ("training.micro_batch_size=2", "training.num_epochs=2", "optimizer.learning_rate=0.001")
SIZES = ("data.n_train=21", "data.n_valid=7")  # a remainder in every update, and in validation


class Workload(NamedTuple):
    name: str
    texts: Sequence[str]
    ipus: int = 1
    accumulation: int = 2


WORKLOADS = {
    "CosmoFlow": Workload(
        "cosmoflow",
        ("data.side=8", "model.conv_size=2", "model.n_conv_layers=2", "model.dropout=0", "optimizer.name=sgd"),
    ),
    "MNIST": Workload("mnist", (*IMAGES, "model.dropout=0", "optimizer.name=sgd")),
    "CIFAR ResNet-8": Workload("cifar10", (*IMAGES, "data.side=16", "model.name=cifar_resnet8")),
    "ResNet-18 in 4 stages": Workload(
        "imagenet",
        (
            *(*IMAGES, "data.side=32", "data.classes=10", "model.name=resnet18", "training.num_epochs=1"),
            *("optimizer.name=sgd", "optimizer.lr_scaling=none"),
            "pipeline.splits=[conv2_block2_out, conv3_block2_out, conv4_block2_out]",
        ),
        ipus=4,
        accumulation=8,
    ),
}
# In 16 bits only closeness is promised: one rounding more or less moves a weight by its last bits.
CLOSENESS = {"32.32": 1e-5, "16.32": 5e-3, "16.16": 5e-3}


def rows() -> List[Any]:
    """Every workload on every SDK in every precision; replicas and remainders in turn."""
    found = []
    for name in WORKLOADS:
        for sdk in SDKS:
            for bits in BITS:
                number = len(found)
                replicas, remainder = 1 + number % 2, REMAINDERS[(number // 2) % 3]
                case = (name, sdk, bits, replicas, remainder)
                found.append(pytest.param(*case, id=" ".join(map(str, case))))
    return found


def settings_of(workload: Workload, *texts: str) -> Any:
    overrides = [assignment(text, "--set") for text in (*SMALL, *SIZES, *workload.texts, *texts)]
    return resolve(workload.name, rehearsal=True, overrides=overrides).settings


def trained(path: Path, workload: Workload, settings: Any, backend: Any) -> Dict[str, np.ndarray]:
    """The weights that a run leaves, by name, and its measures."""
    directory = RunDirectory(path)
    records, stop = Records(directory, 0), StopRequest(directory, 0, backend.collective)
    job = Job(workload.name, "cpu", settings)
    records.done(run_instance(Instance(job, backend.plan, 0, backend, directory, records, 1, stop)))
    saved = sorted((path / "checkpoints").iterdir())[-1]
    names = json.loads((saved / "manifest.json").read_text())["names"]
    (path / "measured.json").write_text((path / "metrics.jsonl").read_text().splitlines()[-1])
    return dict(zip(names, load(saved).weights))


@pytest.mark.night
@pytest.mark.parametrize(("name", "sdk", "bits", "replicas", "remainder"), rows())
def test_a_workload_trains_as_on_cpus(
    name: str, sdk: str, bits: str, replicas: int, remainder: str,
    standin: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """At night; see above."""
    workload = WORKLOADS[name]
    accumulation = f"training.gradient_accumulation_count={workload.accumulation}"
    texts = (accumulation, f"training.precision='{bits}'", f"training.remainder={remainder}")
    if remainder == "drop" and workload.accumulation > 2:  # enough for an update
        texts += ("data.n_train=40",)
    monkeypatch.setenv("POPDIST_NUM_IPUS_PER_REPLICA", str(workload.ipus))
    settings = settings_of(workload, *texts)
    standin(sdk, replicas=replicas)
    batch = Batch(2, replicas, workload.accumulation)
    found = trained(tmp_path / "ipu", workload, settings, ipu_backend(settings, plan_of(batch)))
    expected = trained(tmp_path / "cpu", workload, settings, CpuBackend(settings, plan_of(batch), 0, Alone()))
    assert found.keys() == expected.keys()
    for weight, value in expected.items():
        assert np.isfinite(found[weight]).all()
        np.testing.assert_allclose(found[weight], value, atol=CLOSENESS[bits], err_msg=weight)
    mine, theirs = (json.loads((tmp_path / which / "measured.json").read_text()) for which in ("ipu", "cpu"))
    assert mine["val_loss"] == pytest.approx(theirs["val_loss"], rel=20 * CLOSENESS[bits])


@pytest.mark.night
@pytest.mark.parametrize("sdk", SDKS)
def test_batch_norm_trains_on_where_it_was_interrupted(sdk: str, standin: Install, tmp_path: Path) -> None:
    """At night: test_train.py resumes on CPUs, and a resume inside a device call is in test_backend.py."""
    workload = WORKLOADS["CIFAR ResNet-8"]
    standin(sdk, replicas=2)
    texts = ("training.gradient_accumulation_count=2", "optimizer.momentum=0.9")
    whole, first = settings_of(workload, *texts), settings_of(workload, *texts, "training.num_epochs=1")
    backend = ipu_backend(whole, plan_of(Batch(2, 2, 2)))
    expected = trained(tmp_path / "whole", workload, whole, backend)
    backend.settings = first
    trained(tmp_path / "first", workload, first, backend)
    backend.settings = second = settings_of(workload, *texts, f"training.resume={tmp_path / 'first'}")
    found = trained(tmp_path / "second", workload, second, backend)
    for weight, value in expected.items():
        np.testing.assert_array_equal(found[weight], value, err_msg=weight)
