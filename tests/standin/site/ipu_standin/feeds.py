"""The infeed of a model: what data it takes, and how many steps that makes."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence, Tuple

import tensorflow as tf

TYPES = {tf.int32, tf.int64, tf.float16, tf.float32, tf.bool, tf.int8, tf.uint8}


class Feed:
    """Micro-batches of a dataset, in turn for each replica."""

    def __init__(
        self, dataset: Any, inputs: Sequence[Any], replicas: int, steps: Optional[int], per_execution: int, epochs: int
    ) -> None:
        if not isinstance(dataset, tf.data.Dataset):
            raise TypeError(f"the stand-in feeds from a tf.data.Dataset, not from {type(dataset).__name__}")
        for spec in tf.nest.flatten(dataset.element_spec):
            if not spec.shape.is_fully_defined():
                raise ValueError(f"a shape of the dataset is not fully defined: {spec.shape}")
        for dtype in [spec.dtype for spec in tf.nest.flatten(dataset.element_spec)] + [t.dtype for t in inputs]:
            if dtype not in TYPES:
                raise TypeError(f"the IPU has no {dtype.name}")
        size = int(dataset.cardinality())
        if steps is None and size < 0:
            raise ValueError("the size of the data cannot be told: the number of steps must be given")
        total = size if steps is None else steps
        if total % replicas:
            raise ValueError(f"{total} micro-batches are not divided evenly among {replicas} replicas; some get lost")
        self.replicas, self.steps = replicas, total // replicas
        self.steps_per_execution = per_execution
        # The SDK takes an execution longer than the data with a warning, and shortens it: here it is a mistake.
        if not self.steps or self.steps % per_execution:
            raise ValueError(f"steps_per_execution {per_execution} does not divide the {self.steps} steps of a replica")
        self.is_renewed = steps is None or size == steps
        if size >= 0 and total * (1 if self.is_renewed else epochs) > size:
            raise ValueError(f"the dataset has {size} micro-batches, {total} in each of {epochs} epochs are asked for")
        self.dataset = dataset
        self.iterator: Any = None

    def executions(self, epoch: int) -> Iterator[int]:
        """The first step of each execution in an epoch."""
        if self.iterator is None or self.is_renewed:
            self.iterator = iter(self.dataset)
        return iter(range(0, self.steps, self.steps_per_execution))

    def next(self) -> Tuple[Any, ...]:
        try:
            element: Tuple[Any, ...] = next(self.iterator)
        except StopIteration:
            raise RuntimeError("the feed has run dry") from None
        return element
