"""How fast is training through `ipulaunch`, beside plain Keras on the same cores with the same global batch?

    python benchmarks/training.py [ROUNDS]

Every round runs, one after the other, for each workload: plain Keras `fit` in one process on two cores, and `ipulaunch`
with two instances of one core each. Compilation is left out of both. Then, in one process, an update called in a bare
loop beside the same update through all of `fit` and the records: the difference is what `ipulaunch` adds. Figures are
ratios; absolute times mean little on a shared machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List

REPLICAS = 4
# The workload, its settings, and its global batch.
JOBS: Dict[str, List[str]] = {
    "cosmoflow": ["data.side=32", "data.n_train=128", "model.dropout=0", "training.micro_batch_size=4"],
    "cifar10": ["data.n_train=2048", "training.micro_batch_size=16"],
}
COMMON = ["training.gradient_accumulation_count=1", "training.num_epochs=4", "training.validation=false"]
COMMON += ["training.ckpts_per_epoch=0", "training.deterministic=false"]


def settings(name: str) -> List[str]:
    return [word for text in (*JOBS[name], *COMMON) for word in ("--set", text)]


def through_ipulaunch(name: str, directory: Path) -> float:
    run = directory / f"{name}-{len(list(directory.iterdir()))}"
    command = [sys.executable, "-m", "ipulaunch.launcher", name, f"--pod={REPLICAS}", "--engine=openmpi"]
    command += ["--num-instances=2", "--host-layout=1x2", "--run-dir", str(run), *settings(name)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return float(json.loads((run / "summary.json").read_text())["samples_per_s"])


def in_this_process(name: str, what: str) -> Dict[str, float]:
    """The figures that this program gives when it is started as its own helper."""
    done = subprocess.run([sys.executable, __file__, what, name], stdout=subprocess.PIPE, text=True, check=True)
    figures: Dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(what: str, name: str) -> Dict[str, float]:
    """Started as a helper: bind to two cores, then import TensorFlow and measure."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: 2 if what == "keras" else 1])
    from ipulaunch.workers.threads import use_keras_2

    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    use_keras_2(os.environ)
    import time

    import tensorflow as tf

    from ipulaunch.configs.job import Job
    from ipulaunch.configs.run_directory import RunDirectory
    from ipulaunch.configs.tree import assignment
    from ipulaunch.configs.workloads import resolve
    from ipulaunch.data_pipeline.choice import make_sources
    from ipulaunch.data_pipeline.order import Shuffle
    from ipulaunch.data_pipeline.stream import training_stream
    from ipulaunch.topology import Batch
    from ipulaunch.topology.host_events import host_events
    from ipulaunch.topology.networks import network_of
    from ipulaunch.topology.popdist import Place
    from ipulaunch.workers.backends.cpu import CpuBackend
    from ipulaunch.workers.collective import Alone
    from ipulaunch.workers.instance import Instance
    from ipulaunch.workers.measures import measures_of
    from ipulaunch.workers.models.build import build_model
    from ipulaunch.workers.optimizers import make_optimizer
    from ipulaunch.workers.progress import Progress
    from ipulaunch.workers.records import Records
    from ipulaunch.workers.stopping import StopRequest

    overrides = [assignment(text, "--set") for text in (*JOBS[name], *COMMON)]
    job = Job(name, "cpu", resolve(name, rehearsal=True, overrides=overrides).settings)
    training = job.settings.training
    batch, place = Batch(training.micro_batch_size, REPLICAS, 1), Place(0, 1, 0, 1, 0, REPLICAS, REPLICAS, 1)
    source = make_sources(job, place, 1, meet=str, progress=lambda done, total: None)["train"]
    updates = source.samples // batch.global_size
    measures = measures_of(job.settings)

    class Laps(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            if epoch == 1:
                self.start = time.perf_counter()

    def stream(size: Batch, where: Place, epochs: int) -> tf.data.Dataset:
        ahead = range(epochs * (source.samples // size.global_size))
        return training_stream(source, size, where, shuffle=Shuffle(0), updates=ahead, by_replica=True, threads=2)

    if what == "keras":
        model = build_model(network_of(job.settings), lambda rate, layer: tf.keras.layers.Dropout(rate, name=layer))
        whole, alone = Batch(batch.global_size, 1, 1), Place(0, 1, 0, 1, 0, 1, 1, 1)
        model.compile(make_optimizer(job.settings, batch, updates), loss=lambda t, o: measures[0].of(t, o))
        laps = Laps()
        data = stream(whole, alone, training.num_epochs)
        model.fit(data, epochs=training.num_epochs, steps_per_epoch=updates, callbacks=[laps], verbose=0)
        samples = (training.num_epochs - 1) * updates * batch.global_size
        return {"samples_per_s": samples / (time.perf_counter() - laps.start)}

    backend = CpuBackend(job.settings, batch, place, Alone())
    model = build_model(network_of(job.settings), backend.dropout)
    trained = backend.prepare(model, make_optimizer(job.settings, batch, updates), measures, None)
    update = trained.make_train_function()
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(Path(directory))
        instance = Instance(job, batch, place, backend, run, Records(run, 0), 1, StopRequest(run, place, Alone()))
        times: Dict[str, List[float]] = {"bare": [], "fit": []}
        update(iter(stream(batch, place, 1)))
        for _ in range(5):
            data = iter(stream(batch, place, 1).cache())
            start = time.perf_counter()
            for _ in range(updates):
                update(data)
            times["bare"].append(time.perf_counter() - start)
            events, _ = host_events(1, updates, training.logs_per_epoch, training.ckpts_per_epoch)
            progress = Progress(instance, events, lambda row: None, lambda progress: None)
            data = stream(batch, place, 1).cache()
            start = time.perf_counter()
            trained.fit(data, epochs=1, steps_per_epoch=updates, callbacks=[progress], verbose=0)
            times["fit"].append(time.perf_counter() - start)
    return {name: statistics.median(values) / updates for name, values in times.items()}


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], sys.argv[2])))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as directory:
        for name in JOBS:
            ratios = []
            for _ in range(rounds):
                ours = through_ipulaunch(name, Path(directory))
                theirs = in_this_process(name, "keras")["samples_per_s"]
                ratios.append(ours / theirs)
                print(f"{name}: ipulaunch {ours:.1f} samples/s, Keras {theirs:.1f}: {ratios[-1]:.2f}", flush=True)
            print(f"{name}: ipulaunch / Keras, median of {rounds}: {statistics.median(ratios):.2f} (goal 1)")
            figures = in_this_process(name, "overhead")
            added = figures["fit"] / figures["bare"] - 1
            bare_ms = figures["bare"] * 1e3
            print(f"{name}: an update takes {bare_ms:.1f} ms in a bare loop, {added:+.1%} in fit (goal below 3 %)")
    try:
        import horovod.tensorflow  # noqa: F401
    except ImportError:
        print("Horovod is not installed: no comparison with it")


if __name__ == "__main__":
    main()
