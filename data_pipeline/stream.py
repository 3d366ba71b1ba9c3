"""From a source of samples to the tf.data streams of one instance."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional, Protocol, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.order import epoch_order, training_ids, validation_ids
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place

_MICRO_BATCHES_AHEAD = 4  # per thread; bounds the memory of an instance, whatever the number of samples


class Source(Protocol):
    """Samples that can be fetched by number."""

    @property
    def samples(self) -> int: ...

    @property
    def shape(self) -> Tuple[int, ...]: ...

    @property
    def targets(self) -> int: ...

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]: ...


class Watched:
    """A source that remembers what was wrong with its data: TensorFlow keeps only a text of the error."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.error: Optional[DataError] = None
        self.samples, self.shape, self.targets = source.samples, source.shape, source.targets

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        try:
            return self.source.load(ids)
        except DataError as error:
            self.error = self.error or error
            raise


@contextlib.contextmanager
def data_errors(*sources: Watched) -> Iterator[None]:
    """Inside, a DataError that a source met ends as itself."""
    try:
        yield
    except tf.errors.OpError:
        for source in sources:
            if source.error is not None:
                raise source.error from None
        raise


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
        return tf.data.Dataset.from_tensor_slices(ids)

    stream = tf.data.Dataset.range(epochs).flat_map(numbers)
    return _ahead(stream.map(_loader(source, batch), threads, deterministic=True), threads)


def validation_stream(source: Source, batch: Batch, place: Place, *, threads: int) -> tf.data.Dataset:
    """Micro-batches of one pass over the validation samples, with a weight for each sample."""
    ids, weights = validation_ids(source.samples, batch, place)
    load = _loader(source, batch)
    stream = tf.data.Dataset.from_tensor_slices((ids, weights))
    return _ahead(stream.map(lambda i, w: (*load(i), w), threads, deterministic=True), threads)


def _loader(source: Source, batch: Batch) -> Any:
    def load(ids: Any) -> Any:
        volumes, targets = tf.numpy_function(source.load, [ids], (tf.int16, tf.float32))
        volumes.set_shape((batch.micro_size, *source.shape))
        targets.set_shape((batch.micro_size, source.targets))
        return volumes, targets

    return load


def _ahead(stream: tf.data.Dataset, threads: int) -> tf.data.Dataset:
    options = tf.data.Options()
    # The instance's own cores, not the machine's: tf.data would start a thread for each CPU it sees.
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    return stream.prefetch(_MICRO_BATCHES_AHEAD * threads).with_options(options)
