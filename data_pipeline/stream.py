"""The tf.data streams of one instance."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ipulaunch.data_pipeline.order import epoch_order, training_ids, validation_ids
from ipulaunch.data_pipeline.source import Source
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place

_MICRO_BATCHES_AHEAD = 4  # per thread; bounds the memory of an instance, whatever the number of samples


def training_stream(
    source: Source, batch: Batch, place: Place, *, seed: int, epochs: int, by_replica: bool, threads: int
) -> tf.data.Dataset:
    """Micro-batches of all epochs, for our replicas and all accumulation steps of each weight update."""

    def ids_of(epoch: np.ndarray) -> np.ndarray:
        order = epoch_order(source.samples, seed, int(epoch))
        return training_ids(order, batch, place, by_replica=by_replica)

    def numbers(epoch: Any) -> tf.data.Dataset:
        ids = tf.numpy_function(ids_of, [epoch], tf.int64)
        ids.set_shape([None, batch.micro_size])
        return tf.data.Dataset.from_tensor_slices(ids).map(lambda row: (epoch, row))

    stream = tf.data.Dataset.range(epochs).flat_map(numbers)
    return _ahead(source.dataset(stream, batch.micro_size, threads), threads)


def validation_stream(source: Source, batch: Batch, place: Place, *, threads: int) -> tf.data.Dataset:
    """Micro-batches of one pass over the validation samples, with a weight for each sample."""
    ids, weights = validation_ids(source.samples, batch, place)
    numbers = tf.data.Dataset.from_tensor_slices((np.zeros(len(ids), np.int64), ids))
    samples = source.dataset(numbers, batch.micro_size, threads)
    weighted = tf.data.Dataset.zip((samples, tf.data.Dataset.from_tensor_slices(weights)))
    return _ahead(weighted.map(lambda sample, weight: (*sample, weight)), threads)


def _ahead(stream: tf.data.Dataset, threads: int) -> tf.data.Dataset:
    options = tf.data.Options()
    # The instance's own cores, not the machine's: tf.data would start a thread for each CPU it sees.
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    return stream.prefetch(_MICRO_BATCHES_AHEAD * threads).with_options(options)
