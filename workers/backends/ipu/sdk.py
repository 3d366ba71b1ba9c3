"""The Poplar SDK's Python side, from wherever each version from 2.6 to 3.4 keeps it."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import tensorflow as tf

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.text import ENABLE_SDK
from ipulaunch.topology.planning.refusals import AUTOMATIC_SCALING


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
