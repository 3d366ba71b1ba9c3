from __future__ import annotations

import gc
from typing import Set

import numpy as np
import tensorflow as tf

from ipulaunch.data_pipeline.records.memory import PAGE, ReusedMemory


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_memory_is_used_again_only_when_nothing_looks_into_it() -> None:
    memory = ReusedMemory()
    first = memory.array((2, 3, 5), np.int16)
    place, part = address(first), first[1, 2]
    assert place % PAGE == 0 and first.shape == (2, 3, 5) and first.dtype == np.int16
    del first
    assert address(memory.array((2, 3, 5), np.int16)) != place
    del part
    assert address(memory.array((2, 3, 5), np.int16)) == place


def test_sizes_are_kept_apart() -> None:
    memory = ReusedMemory()
    small = memory.array((4,), np.float32)
    place = address(small)
    del small
    large = memory.array((8,), np.float32)
    assert address(large) != place and address(memory.array((16,), np.uint8)) == place


def test_tensorflow_keeps_what_it_has_taken_over() -> None:
    """The elements that were not let go keep their values while others come and go."""
    memory = ReusedMemory()
    places: Set[int] = set()

    def fill(number: np.ndarray) -> np.ndarray:
        array = memory.array((1 << 16,), np.int64)
        places.add(address(array))
        array[...] = number
        return array

    numbers = tf.data.Dataset.range(200).map(lambda n: tf.numpy_function(fill, [n], tf.int64), 2).prefetch(3)
    kept = []
    for number, tensor in enumerate(numbers):
        assert int(tensor[0]) == number == int(tensor[-1])
        if number % 20 == 0:
            kept.append((number, tensor))
        if number % 50 == 0:
            gc.collect()
    assert all(np.array_equal(tensor, np.full(1 << 16, number)) for number, tensor in kept)
    assert len(places) < 40  # ten that are kept, and those that were under way
