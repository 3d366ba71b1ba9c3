"""The Poplar SDK's Python side, from wherever each version from 2.6 to 3.4 keeps it, and its sums over hosts."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, NamedTuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.text import ENABLE_SDK
from ipulaunch.topology.planning.refusals import AUTOMATIC_SCALING
from ipulaunch.workers.backends.collective import Alone, Collective


class Sdk(NamedTuple):
    """What we use of the SDK."""

    popdist: Any
    ipu: Any
    pipelining_ops: Any
    image_ops: Any
    reduction_method: Any
    popdist_strategy: Any
    join: Callable[[], None]  # meets the other instances on the host network
    sum: Callable[[Any], Any]  # of a tensor, over all instances


def load_sdk() -> Sdk:
    """The SDK's modules: nothing of it is imported anywhere else."""
    try:
        return _import_sdk()
    except ImportError as error:
        raise NotReadyError(
            f"the Poplar SDK's TensorFlow is not here: {error}",
            hint=f"{ENABLE_SDK} (2.6 or later), and pip install the tensorflow and keras wheels inside it;"
            " --engine openmpi rehearses on CPUs without them",
        ) from error


def _import_sdk() -> Sdk:
    import popdist
    import popdist.tensorflow
    from tensorflow.python import ipu
    from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod
    from tensorflow.python.ipu.ops import image_ops, pipelining_ops

    everywhere = (popdist, ipu, pipelining_ops, image_ops, GradientAccumulationReductionMethod)
    if not hasattr(popdist, "init"):  # SDK 2.6
        from tensorflow.python.ipu import horovod
        from tensorflow.python.ipu.horovod.popdist_strategy import PopDistStrategy

        def horovod_sum(value: Any) -> Any:
            return horovod.allreduce(value, op=horovod.Sum)  # the default is the mean

        return Sdk(*everywhere, PopDistStrategy, horovod.init, horovod_sum)

    from tensorflow.python.ipu.distributed import host_collective_ops
    from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy

    if hasattr(host_collective_ops, "allreduce"):
        allreduce = host_collective_ops.allreduce
    else:  # SDK 3.0
        allreduce = host_collective_ops.all_reduce

    def popdist_sum(value: Any) -> Any:
        return allreduce(value, tf.distribute.ReduceOp.SUM)

    return Sdk(*everywhere, PopDistStrategy, popdist.init, popdist_sum)


def load_als() -> Any:
    """The SDK's class, which is there since 3.0."""
    try:
        from keras.ipu.optimizers import ALSOptimizer
    except ImportError as error:
        raise AUTOMATIC_SCALING.missing() from error
    return ALSOptimizer


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
