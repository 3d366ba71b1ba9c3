"""One SGD step on one weight, for several batches, on however many instances this is started with.

x = linspace(0, 1, 16), targets 0, weight 1, rate 1: the mean of x^2 is 0.3444..., so the weight becomes 0.3111...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ipulaunch.configs.keras_2 import use_keras_2

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
use_keras_2(os.environ)

import numpy as np  # noqa: E402 - Keras 2 is chosen before TensorFlow is imported
import tensorflow as tf  # noqa: E402

from ipulaunch.configs.optimization import Optimizer  # noqa: E402
from ipulaunch.configs.workload import WorkloadSettings  # noqa: E402
from ipulaunch.data_pipeline.order import Shuffle  # noqa: E402
from ipulaunch.data_pipeline.source import ArraySource  # noqa: E402
from ipulaunch.data_pipeline.stream import training_stream  # noqa: E402
from ipulaunch.topology import Batch, popdist  # noqa: E402
from ipulaunch.workers.backends.cpu import CpuBackend  # noqa: E402
from ipulaunch.workers.backends.interface import Feed  # noqa: E402
from ipulaunch.workers.collective import join  # noqa: E402
from ipulaunch.workers.measures import Measure  # noqa: E402
from ipulaunch.workers.optimizers import make_optimizer  # noqa: E402


class Line(ArraySource):
    samples = 16
    inputs, targets = (np.int16, (1,)), (np.float32, (1,))

    def load(self, ids):
        # Sixteenths fit the stream's int16; the model divides again.
        return ids.astype(np.int16)[:, None], np.zeros((len(ids), 1), np.float32)


def step(place, collective, batch):
    settings = WorkloadSettings(optimizer=Optimizer("sgd", 1.0))
    backend = CpuBackend(settings, batch, place, collective)
    inputs = tf.keras.Input((1,), dtype="int16")
    fraction = tf.keras.layers.Lambda(lambda x: tf.cast(x, tf.float32) / 15)(inputs)
    outputs = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")(fraction)
    model = tf.keras.Model(inputs, outputs)
    loss = Measure("loss", lambda targets, outputs: tf.reduce_mean(tf.square(outputs - targets), axis=-1))
    trained = backend.prepare(model, make_optimizer(settings, batch, 1), [loss], None)
    stream = training_stream(Line(), batch, place, shuffle=Shuffle(0), updates=range(1), by_replica=True, threads=1)
    trained.fit(Feed(stream), epochs=1, steps_per_epoch=1, callbacks=[])
    return float(model.get_weights()[0][0, 0])


def main():
    place = popdist.read_place(os.environ)
    collective = join(place)
    batches = [Batch(16 // (4 * steps), 4, steps) for steps in (1, 4)]
    weights = {str(batch.accumulation): step(place, collective, batch) for batch in batches}
    Path(sys.argv[1], f"{place.instances}-{place.instance}.json").write_text(json.dumps(weights))


main()
