"""Samples that are fetched by number, and how they become a stream of micro-batches."""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple, TypeVar

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.text import counted
from ipulaunch.data_pipeline.ending import ends_with_python

_MOST_TRIED = 100  # samples to try in place of a bad one

# For the functions of tf.data's maps. AutoGraph would rewrite their loops and branches, and none of them need it: that
# took more than half of the time to the first micro-batch.
unconverted = tf.autograph.experimental.do_not_convert

Read = TypeVar("Read")
Meet = Callable[[str], str]  # waits for the other instances and returns what instance 0 passed
Progress = Callable[[str, int, int], object]  # (what, done, in all)
Field = Tuple[Any, Tuple[int, ...]]  # NumPy type and shape of one sample's part


class Source(ABC):
    """A set of samples."""

    samples: int
    preparation = ""  # of the set, if its samples are not as published

    def __init__(self) -> None:
        self.error: Optional[DataError] = None  # the first one; TensorFlow keeps only its text
        self.bad: Dict[int, DataError] = {}  # what was replaced, and why

    @abstractmethod
    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        """(inputs, targets) for each (epoch, numbers of a micro-batch), in the same order."""

    def traced(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        """The same, with the numbers that were read: those requested, unless the source replaces samples."""
        samples = tf.data.Dataset.zip((self.dataset(numbers, micro_size, threads), numbers))
        return samples.map(unconverted(lambda sample, number: (*sample, number[1])))

    def cause(self) -> Optional[DataError]:
        """What is wrong with the data, if a stream failed because of it."""
        return self.error

    def following(self, number: int) -> int:
        """The sample to try if this one cannot be read."""
        return number + 1

    def near(self, number: int, read: Callable[[int], Read]) -> Read:
        """What `read` returns for this sample, or for the next one that can be read."""
        tried: Dict[int, DataError] = {}
        while number not in tried and len(tried) < _MOST_TRIED:
            try:
                return read(number)
            except DataError as error:
                # Without a traceback, which would keep the micro-batches in memory.
                self.bad[number] = tried[number] = DataError(error.message, hint=error.hint)
            following = self.following(number)
            number = following if following < self.samples else 0
        first = next(iter(tried.values()))
        raise DataError(
            f"{first.message}; {counted(len(tried), 'sample')} tried from there on, and none can be read",
            hint=first.hint or "ipulaunch data verify names all defects of a set",
        )

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


class Unread(Source):
    """A split that a job does not read: its files need not exist."""

    samples = 0

    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        raise AssertionError("a split that is not read has no samples")


class ArraySource(Source):
    """A source whose micro-batches are made by NumPy."""

    inputs: Field
    targets: Field
    replaces_bad = False  # a sample that cannot be read is replaced by its neighbour

    @abstractmethod
    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The inputs and targets of these samples."""

    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        return self._fetched(numbers, micro_size, threads, (self.inputs, self.targets))

    def traced(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        if not self.replaces_bad:
            return super().traced(numbers, micro_size, threads)
        return self._fetched(numbers, micro_size, threads, (self.inputs, self.targets, (np.int64, ())))

    def _fetched(
        self, numbers: tf.data.Dataset, micro_size: int, threads: int, fields: Sequence[Field]
    ) -> tf.data.Dataset:
        load: Callable[[np.ndarray], Tuple[np.ndarray, ...]] = self.load
        if self.replaces_bad:
            load = self._load_or_replace
        read = self.guarded(lambda ids: load(ids)[: len(fields)])

        def fetch(epoch: Any, ids: Any) -> Any:
            values = tf.numpy_function(read, [ids], [tf.as_dtype(kind) for kind, _ in fields])
            for value, (_, shape) in zip(values, fields):
                value.set_shape((micro_size, *shape))
            return tuple(values)

        return untuned(numbers.map(unconverted(fetch), threads, deterministic=True))

    def _load_or_replace(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The inputs and targets of these samples, or of their neighbours, and the numbers that were read."""
        try:
            return (*self.load(ids), ids)
        except DataError:
            inputs, targets, numbers = zip(*(self.near(int(number), self._load_one_of) for number in ids))
            return np.concatenate(inputs), np.concatenate(targets), np.array(numbers, np.int64)

    def _load_one_of(self, number: int) -> Tuple[np.ndarray, np.ndarray, int]:
        return (*self.load(np.array([number])), number)


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without TensorFlow's thread that tunes sizes: ours come from the binding.

    That thread can miss that its stream has been abandoned, and then delays the caller, or the end of the program, by
    up to a minute for each stream (seen with TensorFlow 2.15 on busy cores).
    """
    options = tf.data.Options()
    if hasattr(options, "autotune"):
        options.autotune.enabled = False
    else:  # TensorFlow 2.6
        options.experimental_optimization.autotune = False
    return dataset.with_options(options)


@contextlib.contextmanager
def data_errors(*sources: Source) -> Iterator[None]:
    """Inside, a source's DataError is raised as itself, not as an error of TensorFlow's."""
    try:
        yield
    except tf.errors.OpError:
        for source in sources:
            cause = source.cause()
            if cause is not None:
                raise cause from None
        raise
