"""The tf.data streams of one instance."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ipulaunch.data_pipeline.ending import ends_with_python
from ipulaunch.data_pipeline.order import (
    Shuffle,
    last_weights,
    order_type,
    training_ids,
    validation_ids,
    whole_updates,
)
from ipulaunch.data_pipeline.sources.source import Source, unconverted
from ipulaunch.topology import Batch
from ipulaunch.topology.planning.batch import updates_per_epoch

_MICRO_BATCHES_AHEAD = 4  # per thread; bounds the memory of an instance, whatever the number of samples


def training_stream(
    source: Source,
    batch: Batch,
    replicas: range,
    *,
    shuffle: Shuffle,
    updates: range,
    by_replica: bool,
    threads: int,
    remainder: str = "drop",
    traced: bool = False,
) -> tf.data.Dataset:
    """Micro-batches of these weight updates, counted from the start of training, for these replicas and all steps.

    (inputs, targets), with `pad` also the weights of the samples, and when traced also (epoch, the planned
    numbers, the numbers that were read): a sample that cannot be read may be replaced. Here, an epoch is a pass over
    the samples.
    """
    per_epoch = updates_per_epoch(source.samples, batch, remainder)
    rows_per_update = len(replicas) * batch.accumulation
    first_epoch, skipped = divmod(updates.start, per_epoch)

    @ends_with_python
    def rows(epoch: np.ndarray) -> np.ndarray:
        order, _ = whole_updates(source.samples, shuffle, int(epoch), batch, remainder)
        ids = training_ids(order, batch, replicas, by_replica=by_replica)
        return ids[skipped * rows_per_update if epoch == first_epoch else 0 :]

    def numbered(epoch: Any) -> tf.data.Dataset:
        ids = tf.numpy_function(rows, [epoch], tf.as_dtype(order_type(source.samples, shuffle)))
        ids.set_shape([None, batch.micro_size])
        return _numbers(epoch, ids)

    every = tf.data.Dataset.range(first_epoch, -(-updates.stop // per_epoch)).flat_map(unconverted(numbered))
    every = every.take(len(updates) * rows_per_update)
    read = source.traced if traced else source.dataset
    samples = read(every, batch.micro_size, threads)
    if remainder == "pad":
        last = training_ids(last_weights(source.samples, batch, shuffle.shares), batch, replicas, by_replica=by_replica)
        weights = _weights(last, updates, per_epoch)
        weighted = tf.data.Dataset.zip((samples, weights))
        samples = weighted.map(unconverted(lambda sample, weight: (*sample[:2], weight, *sample[2:])))
    if traced:
        planned = tf.data.Dataset.zip((samples, every))
        samples = planned.map(unconverted(lambda sample, number: (*sample[:-1], (*number, sample[-1]))))
    return _ahead(samples, threads)


def validation_stream(source: Source, batch: Batch, replicas: range, *, threads: int) -> tf.data.Dataset:
    """Micro-batches of these replicas in one pass over the validation samples, with a weight for each sample."""
    ids, weights = validation_ids(source.samples, batch, replicas)
    samples = source.dataset(_numbers(tf.constant(0, tf.int64), ids), batch.micro_size, threads)
    weighted = tf.data.Dataset.zip((samples, tf.data.Dataset.from_tensor_slices(weights)))
    weighted = weighted.map(unconverted(lambda sample, weight: (*sample, weight)))
    return _ahead(weighted, threads)


def _numbers(epoch: Any, ids: Any) -> tf.data.Dataset:
    """(epoch, numbers of a micro-batch) for each row of ids."""
    return tf.data.Dataset.from_tensor_slices(ids).map(unconverted(lambda row: (epoch, tf.cast(row, tf.int64))))


def _weights(last: np.ndarray, updates: range, per_epoch: int) -> tf.data.Dataset:
    """The weights of the samples of each micro-batch: the given ones in an epoch's last update, else 1."""

    def of_update(update: Any) -> tf.data.Dataset:
        is_last = (update + 1) % per_epoch == 0
        return tf.data.Dataset.from_tensor_slices(tf.where(is_last, last, tf.ones_like(last)))

    return tf.data.Dataset.range(updates.start, updates.stop).flat_map(unconverted(of_update))


def _ahead(stream: tf.data.Dataset, threads: int) -> tf.data.Dataset:
    options = tf.data.Options()
    # The instance's own cores, not the machine's: tf.data would start a thread for each CPU it sees.
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    return stream.prefetch(_MICRO_BATCHES_AHEAD * threads).with_options(options)
