"""The infeed of a model: what data it takes, and how many steps that makes."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence, Tuple

import tensorflow as tf

STOCK_ITER = tf.data.Dataset.__iter__
TYPES = {tf.int32, tf.int64, tf.float16, tf.float32, tf.bool, tf.int8, tf.uint8}


class Feed:
    """Micro-batches of a dataset, in turn for each replica."""

    def __init__(self, dataset: Any, inputs: Sequence[Any]) -> None:
        if not isinstance(dataset, tf.data.Dataset):
            raise TypeError(f"the stand-in feeds from a tf.data.Dataset, not from {type(dataset).__name__}")
        specs = tf.nest.flatten(dataset.element_spec)
        if any(spec.dtype == tf.float64 for spec in specs):
            dataset = dataset.map(_narrowed)  # as the SDK's Keras does
        self.dataset, self.inputs = dataset, inputs
        self.iterator: Any = None

    def divide(self, replicas: int, steps: Optional[int], per_execution: int, epochs: int) -> None:
        """Count the steps of a replica, in the order of the SDK's checks."""
        size = int(self.dataset.cardinality())
        if steps is None and size < 0:
            raise ValueError("the size of the data cannot be told: the number of steps must be given")
        total = size if steps is None else steps
        if total % replicas:  # the SDK warns, and drops them
            raise ValueError(f"{total} micro-batches are not divided evenly among {replicas} replicas; some get lost")
        self.replicas, self.steps = replicas, total // replicas
        self.steps_per_execution = per_execution
        self.is_renewed = steps is None or size == steps
        # The SDK compares the steps of one replica with the data of all; what it lets pass runs dry later.
        if size >= 0 and total * (1 if self.is_renewed else epochs) > size:
            raise ValueError(f"the dataset has {size} micro-batches, {total} in each of {epochs} epochs are asked for")
        for spec in tf.nest.flatten(self.dataset.element_spec):
            if not spec.shape.is_fully_defined():
                raise ValueError(f"a shape of the dataset is not fully defined: {spec.shape}")
        # The SDK takes an execution longer than the data with a warning, and shortens it: here it is a mistake.
        if not self.steps or self.steps % per_execution:
            raise ValueError(f"steps_per_execution {per_execution} does not divide the {self.steps} steps of a replica")

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs. The infeed is made before the first, and made again for each if it is to begin anew."""
        self._open()
        for epoch in range(count):
            if self.is_renewed:
                self._open()
            yield epoch

    def _open(self) -> None:
        for tensor in [*tf.nest.flatten(self.dataset.element_spec), *self.inputs]:
            if tensor.dtype not in TYPES:
                raise TypeError(f"the IPU has no {tensor.dtype.name}")
        self.iterator = STOCK_ITER(self.dataset)

    def next(self) -> Tuple[Any, ...]:
        try:
            element: Tuple[Any, ...] = next(self.iterator)
        except StopIteration:
            raise RuntimeError("the feed has run dry") from None
        return element


def _narrowed(*structure: Any) -> Any:
    return tf.nest.map_structure(lambda t: tf.cast(t, tf.float32) if t.dtype == tf.float64 else t, structure)
