"""Samples that are fetched by number, and how they become a stream of micro-batches."""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.ending import ends_with_python

_MOST_NEIGHBOURS = 100

Field = Tuple[Any, Tuple[int, ...]]  # NumPy type and shape of one sample's part


class Source(ABC):
    """A set of samples."""

    samples: int

    def __init__(self) -> None:
        self.error: Optional[DataError] = None  # the first one met; TensorFlow keeps only its text
        self.bad: Dict[int, DataError] = {}  # what was replaced, and why

    @abstractmethod
    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        """(inputs, targets) for each (epoch, numbers of a micro-batch), in the same order."""

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function for tf.numpy_function that remembers the DataError it raises."""

        @ends_with_python
        @functools.wraps(function)
        def guard(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except DataError as error:
                self.error = self.error or error
                raise

        return guard


class ArraySource(Source):
    """A source whose micro-batches are made by NumPy."""

    inputs: Field
    targets: Field
    replaces_bad = False  # a sample that cannot be read is replaced by its neighbour

    @abstractmethod
    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The inputs and targets of these samples."""

    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        load = self.guarded(self._load_or_replace if self.replaces_bad else self.load)
        fields = (self.inputs, self.targets)

        def fetch(epoch: Any, ids: Any) -> Any:
            values = tf.numpy_function(load, [ids], [tf.as_dtype(kind) for kind, _ in fields])
            for value, (_, shape) in zip(values, fields):
                value.set_shape((micro_size, *shape))
            return tuple(values)

        return untuned(numbers.map(fetch, threads, deterministic=True))

    def _load_or_replace(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        try:
            return self.load(ids)
        except DataError:
            inputs, targets = zip(*(self._load_near(int(number)) for number in ids))
            return np.concatenate(inputs), np.concatenate(targets)

    def _load_near(self, number: int) -> Tuple[np.ndarray, np.ndarray]:
        """The sample, or the next one that can be read."""
        for distance in range(_MOST_NEIGHBOURS):
            neighbour = (number + distance) % self.samples
            try:
                return self.load(np.array([neighbour]))
            except DataError as error:
                self.bad[neighbour] = error
        raise DataError(f"{_MOST_NEIGHBOURS} samples in a row from number {number} on cannot be read")


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without the thread that tunes its sizes: they come from the binding, none is left to tune.

    That thread can miss that its stream is given up, and then holds up whoever gives it up, or the end of the program,
    until it next looks: for up to a minute with each stream (seen with TensorFlow 2.15 on busy cores).
    """
    options = tf.data.Options()
    if hasattr(options, "autotune"):
        options.autotune.enabled = False
    else:  # TensorFlow 2.6
        options.experimental_optimization.autotune = False
    return dataset.with_options(options)


@contextlib.contextmanager
def data_errors(*sources: Source) -> Iterator[None]:
    """Inside, a DataError that a source met ends as itself, not as an error of TensorFlow's."""
    try:
        yield
    except tf.errors.OpError:
        for source in sources:
            if source.error is not None:
                raise source.error from None
        raise
