from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

import numpy as np
import pytest

from ipulaunch.configs.cosmoflow import CosmoflowData, CosmoflowModel, CosmoflowSettings
from ipulaunch.configs.job import Job
from ipulaunch.configs.optimization import Optimizer
from ipulaunch.configs.run_directory import RunDirectory
from ipulaunch.configs.sections import Training
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place, read_place
from ipulaunch.workers.checkpoints import load
from ipulaunch.workers.records import Records

SITE = Path(__file__).parents[1] / "standin" / "site"
CALLS = "IPU_STANDIN_CALLS"
_OURS = ("POPDIST_", "OMPI_", "PMIX_", "PRTE_", "IPULAUNCH_", "IPU_STANDIN_")

# The same job as settings, and as the options that give them. No dropout: IPUs draw other numbers than CPUs.
TINY = CosmoflowSettings(
    data=CosmoflowData(side=8, n_train=17, n_valid=5),  # 2 updates of 8 and a sample left out; 3 of 8 are padding
    model=CosmoflowModel(conv_size=2, n_conv_layers=2, fc1_size=8, fc2_size=4, dropout=0.0),
    optimizer=Optimizer("adadelta", 0.5),
    training=Training(num_epochs=2, micro_batch_size=1, gradient_accumulation_count=2),
)
TINY_OPTIONS = [
    word
    for text in (
        *("data.side=8", "data.n_train=17", "data.n_valid=5", "model.conv_size=2", "model.n_conv_layers=2"),
        *("model.fc1_size=8", "model.fc2_size=4", "model.dropout=0", "training.num_epochs=2"),
        "training.gradient_accumulation_count=2",
    )
    for word in ("--set", text)
]


class Trained(NamedTuple):
    """What a training leaves."""

    state: List[np.ndarray]  # weights and optimizer
    curve: List[Dict[str, Any]]


@pytest.fixture(scope="session")
def tiny_options() -> List[str]:
    return TINY_OPTIONS


@pytest.fixture(scope="session")
def read_training() -> Callable[[Path], Trained]:
    def read(run: Path) -> Trained:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        curve = [{name: row[name] for name in row if name not in ("train_s", "samples_per_s")} for row in rows]
        last = load(run / "checkpoints" / f"update-{rows[-1]['update']:08}")
        return Trained([*last.weights, *last.optimizer], curve)

    return read


@pytest.fixture(scope="session")
def read_calls() -> Callable[[Path, int], List[Any]]:
    """The recorded calls of one instance: names and arguments."""

    def read(path: Path, instance: int) -> List[Any]:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [(line["call"], line["arguments"]) for line in lines if line["instance"] == instance]

    return read


@pytest.fixture(scope="session")
def train_tiny(read_training: Callable[[Path], Trained]) -> Callable[..., Trained]:
    """Trains the tiny job in this process; `make_backend(batch, place)` says on what."""

    def run(path: Path, place: Place, make_backend: Callable[[Batch, Place], Any]) -> Trained:
        from ipulaunch.workers.instance import Instance
        from ipulaunch.workers.stopping import StopRequest
        from ipulaunch.workers.work import carry_out

        batch = Batch(1, place.replicas, 2)
        directory = RunDirectory(path)
        records = Records(directory, place.instance)
        job, backend = Job("cosmoflow", "cpu", TINY), make_backend(batch, place)
        stop = StopRequest(directory, place, backend.collective)
        records.done(carry_out(Instance(job, batch, place, backend, directory, records, 1, stop)))
        return read_training(path)

    return run


@pytest.fixture(scope="session")
def train_on_cpus(train_tiny: Callable[..., Trained]) -> Callable[[Path, int], Trained]:
    """Trains the tiny job on the CPU backend of one instance, with so many replicas."""

    def run(path: Path, replicas: int) -> Trained:
        from ipulaunch.workers.backends.cpu import CpuBackend
        from ipulaunch.workers.collective import Alone

        place = Place(0, 1, 0, 1, 0, replicas, replicas, 1)
        return train_tiny(path, place, lambda batch, where: CpuBackend(TINY, batch, where, Alone()))

    return run


@pytest.fixture(scope="session")
def on_cpus(
    train_on_cpus: Callable[[Path, int], Trained], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], Trained]:
    """The tiny job on the CPU backend, with so many replicas: what IPUs have to equal."""
    found: Dict[int, Trained] = {}

    def run(replicas: int) -> Trained:
        if replicas not in found:
            found[replicas] = train_on_cpus(tmp_path_factory.mktemp("cpu"), replicas)
        return found[replicas]

    return run


@pytest.fixture()
def sdk_environment(tmp_path: Path) -> Callable[[str], Dict[str, str]]:
    """The environment of a process for which the stand-in is the SDK of this version."""

    def make(sdk: str) -> Dict[str, str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        calls = str(tmp_path / "calls.jsonl")
        return {**environ, "PYTHONPATH": str(SITE), "IPU_STANDIN_SDK": sdk, CALLS: calls}

    return make


@pytest.fixture()
def standin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Place]]:
    """Puts the stand-in of an SDK into this process, alone or as an instance of so many replicas under poprun."""
    for name in [name for name in os.environ if name.startswith(_OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.syspath_prepend(str(SITE))
    from ipu_standin import modules

    finders = []

    def install(sdk: str, replicas: int = 0) -> Place:
        monkeypatch.setenv(CALLS, str(tmp_path / "calls.jsonl"))
        if replicas:
            monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", str(replicas))
            monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", str(replicas))
        finders.append(modules.install(sdk))
        return read_place(os.environ)

    yield install
    for finder in finders:
        modules.uninstall(finder)
