"""The same trainings on 1, 2 and 4 instances, which are groups of the four processes that this is started with.

TensorFlow is imported once in each process. `<where>/<case>-<instances>` is a run directory of the product's own, or a
file of results; who started this compares them. Further arguments are the settings of a job for one process, which
other tests compare with what IPUs make of it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job
from ipulaunch.configs.settings.tree import assignment
from ipulaunch.configs.settings.workloads import resolve
from ipulaunch.topology.planning.batch import Batch, make_batch
from ipulaunch.workers.lifecycle.binding import size_pools

REPLICAS = 4
SIZES = (
    "data.n_train=40",  # 2 updates of 16, and 8 samples left out
    "data.n_valid=13",  # divides by no number of replicas
    "training.gradient_accumulation_count=2",
    "training.micro_batch_size=2",
    "training.num_epochs=2",
)
VOLUMES = ("data.side=8", "model.conv_size=2", "model.n_conv_layers=2", "model.dropout=0.5")
# A network with dropout, one with batch statistics, whose graphs take long to make, and a validation by itself.
CASES: Dict[str, Tuple[str, Tuple[str, ...]]] = {
    "dropout": ("cosmoflow", (*SIZES, *VOLUMES)),
    "batch-statistics": (
        "cifar10",
        (*SIZES, "data.synthetic_data=cpu", "data.side=16", "model.name=cifar_resnet8", "training.validation=false"),
    ),
    "validation": ("cosmoflow", (*SIZES, *VOLUMES, "training.training=false")),
}
ESTIMATOR = (
    *("estimator.api=replica-estimator", "data.side=16", "data.n_train=32", "data.n_valid=9", "model.dropout=0"),
    *("training.micro_batch_size=2", "estimator.batches_per_step=2"),
)


def job_of(workload: str, texts: Sequence[str], *, rehearsal: bool = True) -> Job:
    overrides = [assignment(text, "--set") for text in texts]
    return Job(workload, "cpu", resolve(workload, rehearsal=rehearsal, overrides=overrides).settings)


JOBS = {name: job_of(*case) for name, case in CASES.items()}
size_pools(1, JOBS["dropout"], os.environ)
TESTS = Path(__file__).parents[3]
sys.path += [str(TESTS), str(TESTS / "fixtures" / "smooth")]

import numpy as np  # noqa: E402 - TensorFlow reads how many threads it has when it is imported
import tensorflow as tf  # noqa: E402
from fixtures.plans import plan_of  # noqa: E402
from mpi4py import MPI  # noqa: E402
from smooth_networks import make_smooth  # noqa: E402

from ipulaunch.configs.settings.optimization import Optimizer  # noqa: E402
from ipulaunch.configs.settings.workload import WorkloadSettings  # noqa: E402
from ipulaunch.data_pipeline.order import Shuffle  # noqa: E402
from ipulaunch.data_pipeline.sources.source import ArraySource  # noqa: E402
from ipulaunch.data_pipeline.stream import training_stream  # noqa: E402
from ipulaunch.workers.backends.collective import Alone, Collective, OverMpi  # noqa: E402
from ipulaunch.workers.backends.cpu.backend import CpuBackend  # noqa: E402
from ipulaunch.workers.backends.interface import Feed  # noqa: E402
from ipulaunch.workers.backends.selection import make_devices  # noqa: E402
from ipulaunch.workers.instance import Instance  # noqa: E402
from ipulaunch.workers.lifecycle.records import Records  # noqa: E402
from ipulaunch.workers.lifecycle.stopping import StopRequest  # noqa: E402
from ipulaunch.workers.models import build  # noqa: E402
from ipulaunch.workers.models.measures import Measure  # noqa: E402
from ipulaunch.workers.models.optimizers import make_optimizer  # noqa: E402
from ipulaunch.workers.run import run_instance  # noqa: E402


class Group:
    """Some of the processes, as the instances of a run."""

    def __init__(self, where: Path, communicator: Any) -> None:
        self.where, self.instance, self.instances = where, communicator.Get_rank(), communicator.Get_size()
        self.collective: Collective = OverMpi(communicator) if self.instances > 1 else Alone()

    def run(self, name: str, job: Job, replicas: int = REPLICAS) -> None:
        """Carries a job out as a worker does, with a run directory of its own."""
        tf.keras.backend.clear_session()
        training = job.settings.training
        batch, _ = make_batch(training.micro_batch_size, replicas, training.gradient_accumulation_count, None)
        plan = plan_of(batch, self.instances)
        directory = RunDirectory(self.where / f"{name}-{self.instances}")
        records = Records(directory, self.instance)
        backend = CpuBackend(job.settings, plan, self.instance, self.collective)
        stop = StopRequest(directory, self.instance, self.collective)
        records.done(run_instance(Instance(job, plan, self.instance, backend, directory, records, 1, stop)))

    def step(self) -> None:
        """One SGD step on one weight: every instance writes what became of it."""
        tf.config.run_functions_eagerly(True)  # a graph for one update costs more than the update
        found = {
            "in one micro-batch": self._weight(Line(16), Batch(4, REPLICAS, 1), "drop"),
            "in four micro-batches": self._weight(Line(16), Batch(1, REPLICAS, 4), "drop"),
            "padded": self._weight(Line(13), Batch(1, REPLICAS, 4), "pad"),
        }
        tf.config.run_functions_eagerly(False)
        (self.where / f"step-{self.instances}-{self.instance}.json").write_text(json.dumps(found))

    def _weight(self, source: ArraySource, batch: Batch, remainder: str) -> float:
        tf.keras.backend.clear_session()
        settings = WorkloadSettings(optimizer=Optimizer("sgd", 1.0))
        backend = CpuBackend(settings, plan_of(batch, self.instances), self.instance, self.collective)
        inputs = tf.keras.Input((1,), dtype="int16")
        fraction = tf.keras.layers.Lambda(lambda x: tf.cast(x, tf.float32) / 15)(inputs)
        outputs = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(fraction)
        model = tf.keras.Model(inputs, outputs)
        loss = Measure("loss", lambda targets, outputs: tf.reduce_mean(tf.square(outputs - targets), axis=-1))
        trained = backend.prepare(model, make_optimizer(settings, batch, 1), [loss], None)
        stream = training_stream(
            source, batch, backend.replicas, shuffle=Shuffle(0), updates=range(1), by_replica=True, threads=1,
            remainder=remainder,
        )  # fmt: skip
        trained.fit(Feed(stream), epochs=1, steps_per_epoch=1, callbacks=[])
        return float(model.get_weights()[0][0, 0])

    def estimate(self, *epochs: int) -> None:
        """A replica Estimator for so many epochs, then for more: its directories are kept, and its last variables.

        Its network is smooth, since these are compared with a tolerance.
        """
        undo = make_smooth(build)
        model = self.where / f"model-{self.instances}"
        for last in epochs:
            texts = (*ESTIMATOR, f"training.num_epochs={last}", f"estimator.model_dir={model}")
            self.run(f"estimator-for-{last}", job_of("cifar10", texts))
            if self.instance == 0:
                shutil.copytree(model, f"{model}-after-{last}")
        if self.instance == 0:
            newest = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(model)))
            np.savez(f"{model}.npz", **{name: newest.get_tensor(name) for name in newest.get_variable_to_shape_map()})
        undo()


class Line(ArraySource):
    """Samples 0, 1, ... with targets 0; the model divides by 15, since inputs are whole numbers."""

    inputs, targets = (np.int16, (1,)), (np.float32, (1,))

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        return ids.astype(np.int16)[:, None], np.zeros((len(ids), 1), np.float32)


def main() -> None:
    size_pools(1, JOBS["dropout"], os.environ).in_force()
    make_devices(JOBS["dropout"])
    where, world = Path(sys.argv[1]), MPI.COMM_WORLD
    rank = world.Get_rank()
    groups: List[Tuple[int, ...]] = [(0,), (1,), (2, 3)]
    (color,) = [number for number, ranks in enumerate(groups) if rank in ranks]
    few, all_of_them = Group(where, world.Split(color, rank)), Group(where, world)
    has_estimators = hasattr(tf, "estimator")
    if rank == 1:  # what there is to do only once
        # The same samples without any padding, as a micro-batch is of one.
        plain = (*CASES["validation"][1], "training.micro_batch_size=1", "training.gradient_accumulation_count=1")
        few.run("unpadded-validation", job_of("cosmoflow", plain), replicas=1)
        tiny = job_of("cosmoflow", sys.argv[2:], rehearsal=False)
        few.run("tiny-of-1-replica", tiny, replicas=1)
        few.run("tiny-of-4-replicas", tiny)
        if has_estimators:
            few.estimate(2)
    else:
        few.step()
        for name, job in JOBS.items():
            few.run(name, job)
        if has_estimators and rank > 1:
            few.estimate(1, 2)
    world.Barrier()
    all_of_them.step()
    for name, job in JOBS.items():
        all_of_them.run(name, job)


main()
