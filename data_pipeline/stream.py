"""The tf.data streams of one instance."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.data_pipeline.ending import ends_with_python
from ipulaunch.data_pipeline.order import Shuffle, training_ids, validation_ids, whole_updates
from ipulaunch.data_pipeline.source import Source
from ipulaunch.topology import Batch
from ipulaunch.topology.batch import updates_per_epoch
from ipulaunch.topology.popdist import Place

_MICRO_BATCHES_AHEAD = 4  # per thread; bounds the memory of an instance, whatever the number of samples


def training_stream(
    source: Source,
    batch: Batch,
    place: Place,
    *,
    shuffle: Shuffle,
    updates: range,
    by_replica: bool,
    threads: int,
    remainder: str = "drop",
    traced: bool = False,
) -> tf.data.Dataset:
    """Micro-batches of these weight updates, counted from the start of training, for our replicas and all steps.

    (inputs, targets), with `pad` also the weights of the samples, and when traced also (epoch, their numbers).
    An epoch is a pass over the samples here.
    """
    per_epoch = updates_per_epoch(source.samples, batch, remainder)
    rows_per_update = place.local_replicas * batch.accumulation
    first_epoch, skipped = divmod(updates.start, per_epoch)

    @ends_with_python
    def rows(epoch: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        order, weights = whole_updates(source.samples, shuffle, int(epoch), batch, remainder)
        ids = training_ids(order, batch, place, by_replica=by_replica)
        weights = training_ids(weights, batch, place, by_replica=by_replica)
        before = skipped * rows_per_update if epoch == first_epoch else 0
        return ids[before:], weights[before:]

    def numbered(epoch: Any) -> tf.data.Dataset:
        ids, weights = tf.numpy_function(rows, [epoch], (tf.int64, tf.float32))
        for values in (ids, weights):
            values.set_shape([None, batch.micro_size])
        slices = tf.data.Dataset.from_tensor_slices((ids, weights))
        return slices.map(lambda row, weight: (epoch, row, weight))

    every = tf.data.Dataset.range(first_epoch, -(-updates.stop // per_epoch)).flat_map(numbered)
    every = every.take(len(updates) * rows_per_update)
    samples = source.dataset(every.map(lambda epoch, ids, _: (epoch, ids)), batch.micro_size, threads)

    def element(sample: Any, number: Any) -> Any:
        epoch, ids, weights = number
        extra = ((weights,) if remainder == "pad" else ()) + (((epoch, ids),) if traced else ())
        return (*sample, *extra)

    return _ahead(tf.data.Dataset.zip((samples, every)).map(element), threads)


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
