"""Instances joined by the SDK's collectives on the hosts."""

from __future__ import annotations

import functools
from typing import Any, Callable, List

import numpy as np
import tensorflow as tf

from ipulaunch.workers.backends.collective import Alone, Collective
from ipulaunch.workers.backends.ipu.sdk import load_sdk


class OverHosts:
    """Sums and texts over all instances.

    The SDK sums 32-bit floats and whole numbers, no 64-bit floats. So everything travels as bytes in a table of whole
    numbers: an instance fills its own row, adding the others' zeros changes no bit, and all then sum in one order.
    """

    def __init__(self, sum_tensor: Callable[[Any], Any], index: int, instances: int) -> None:
        self.sum_tensor, self.index, self.instances = sum_tensor, index, instances

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The element-wise sum over all instances, the same on each."""
        return functools.reduce(np.add, self.rows(values))

    def rows(self, values: np.ndarray) -> np.ndarray:
        """What each instance gives, one row each; all give as many values."""
        rows = self._rows(values.tobytes())
        return np.stack([np.frombuffer(row, values.dtype).reshape(values.shape) for row in rows])

    def first(self, text: str) -> str:
        """The text that instance 0 gives, on all."""
        data = text.encode()
        size = int.from_bytes(self._rows(len(data).to_bytes(8, "little"))[0], "little")
        return self._rows(data[:size].ljust(size))[0].decode()

    def _rows(self, data: bytes) -> List[bytes]:
        """What each instance gave; all give as many bytes. Without any bytes there is no table to sum."""
        if not data:
            return [data] * self.instances
        table = np.zeros((self.instances, len(data)), np.int32)
        table[self.index] = np.frombuffer(data, np.uint8)
        with tf.device("/CPU:0"):
            table = self.sum_tensor(tf.constant(table)).numpy()
        return [row.astype(np.uint8).tobytes() for row in table]


def join_hosts(index: int, instances: int) -> Collective:
    """The collective of one of so many instances; those that poprun has started meet on the host network first."""
    sdk = load_sdk()
    if sdk.popdist.isPopdistEnvSet():
        sdk.join()
    return OverHosts(sdk.sum, index, instances) if instances > 1 else Alone()
