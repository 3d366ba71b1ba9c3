"""How fast does `ipulaunch serve` answer, beside a bare loop of `model.predict` on the same model?

    python benchmarks/serving.py [ROUNDS]

The model is Keras's ResNet-50 with random weights, for 64 x 64 pixels in batches of 8, and every request has 8 samples.
A round runs, one after the other: one call of `model.predict` for many batches, and four senders that each wait for an
answer before they send again. The median of the ratios of samples per second counts; absolute numbers mean little on a
shared machine. Exit code 1: the server answers less than 0.7 of what the loop predicts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

from ipulaunch.data_pipeline.reported import settle
from ipulaunch.launcher.serving.address import Address
from ipulaunch.launcher.serving.served import Served
from ipulaunch.launcher.serving.servers import LOOPBACK, started

ROUNDS, BATCH, BATCHES, SIDE, SENDERS, LEAST_RATIO = 5, 8, 60, 64, 4, 0.7
NAME = "resnet50"
# What the senders take their samples from: synthetic images of the same size.
SAMPLES = ["imagenet", "--rehearsal", "--engine", "openmpi", "--set", f"data.side={SIDE}"]


def make_model() -> Any:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1) if hasattr(tf.keras.utils, "set_random_seed") else tf.random.set_seed(1)
    pixels = tf.keras.Input((SIDE, SIDE, 3), batch_size=BATCH, dtype="uint8", name="input")
    scaled = tf.keras.layers.Rescaling(1 / 255)(pixels)
    network = tf.keras.applications.ResNet50(weights=None, input_shape=(SIDE, SIDE, 3), classifier_activation=None)
    return tf.keras.Model(pixels, network(scaled))


def save(directory: str) -> None:
    """Write the model as `ipulaunch export` does: one input, one output, a fixed batch."""
    import tensorflow as tf

    model = make_model()

    @tf.function(  # type: ignore[untyped-decorator, unused-ignore]
        input_signature=[tf.TensorSpec((BATCH, SIDE, SIDE, 3), tf.uint8, name="input")]
    )
    def answer(pixels: Any) -> Dict[str, Any]:
        return {"output": model(pixels, training=False)}

    module = tf.Module()
    module.model, module.answer = model, answer
    tf.saved_model.save(module, directory, signatures={"serving_default": answer})


def predict_in_a_loop() -> float:
    """Samples per second of model.predict, after a first call that is not counted."""
    import numpy as np

    model = make_model()
    samples = np.random.default_rng(1).integers(0, 256, (BATCH * BATCHES, SIDE, SIDE, 3), np.uint8)
    model.predict(samples[: 4 * BATCH], batch_size=BATCH, verbose=0)
    before = time.monotonic()
    model.predict(samples, batch_size=BATCH, verbose=0)
    return len(samples) / (time.monotonic() - before)


def send(address: str) -> Dict[str, Any]:
    """What ipulaunch request measures, with as many samples as the loop has."""
    line = [sys.executable, "-m", "ipulaunch.launcher", "request", *SAMPLES, "--server", address]
    line += ["--served-name", NAME, f"--batch-size={BATCH}", f"--num-threads={SENDERS}"]
    line += [f"--num-images={BATCH * BATCHES // SENDERS}", "--json"]
    result: Dict[str, Any] = json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)
    return result


def in_a_process(*words: str) -> str:
    line = [sys.executable, str(Path(__file__).resolve()), *words]
    return subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(rounds: int) -> int:
    ratios: List[float] = []
    ready: Dict[str, Any] = {}

    def note(event: Dict[str, Any]) -> None:
        ready.update(event if event["event"] == "ready" else {})

    with tempfile.TemporaryDirectory() as directory:
        in_a_process("save", str(Path(directory, "1")))
        for number in range(1, rounds + 1):
            bare = float(in_a_process("loop"))
            with started(Served(Path(directory), NAME), Address(LOOPBACK, 0, 0), None, note):
                sent = send(f"{LOOPBACK}:{ready['port']}")
            ratios.append(sent["throughput"] / bare)
            latency = sent["latency_ms"]
            print(
                f"round {number}: model.predict {bare:.0f} samples/s; server {sent['throughput']:.0f} samples/s,"
                f" {sent['requests'] / sent['seconds']:.1f} requests/s, latency {latency['p50']:.0f} ms (p50),"
                f" {latency['p99']:.0f} ms (p99); ratio {ratios[-1]:.2f}",
                flush=True,
            )
    ratio = statistics.median(ratios)
    print(f"median ratio {ratio:.2f}, goal {LEAST_RATIO}")
    return 0 if ratio >= LEAST_RATIO else 1


if __name__ == "__main__":
    settle(os.environ)
    if sys.argv[1:2] == ["save"]:
        save(sys.argv[2])
    elif sys.argv[1:2] == ["loop"]:
        print(predict_in_a_loop())
    else:
        sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
