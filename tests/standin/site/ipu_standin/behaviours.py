"""What the functions of the table do; those that are not here are refused when called."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict

from ipu_standin.pipelining import LayerAssignment, StageOptions
from ipu_standin.sdk import Sdk, set_ipu_config

_IPU = "tensorflow.python.ipu"
_HOST = f"{_IPU}.distributed.host_collective_ops"
_HOROVOD = f"{_IPU}.horovod"


def behaviours(sdk: Sdk) -> Dict[str, Callable[..., Any]]:
    return {
        "popdist.isPopdistEnvSet": lambda: sdk.is_under_poprun,
        "popdist.isBackendInitialized": lambda: sdk.joined,
        "popdist.init": sdk.join,
        "popdist.getNumTotalReplicas": lambda: sdk.replicas,
        "popdist.getNumLocalReplicas": lambda: sdk.local_replicas,
        "popdist.getNumIpusPerReplica": lambda: sdk.ipus_per_replica,
        "popdist.getReplicaIndexOffset": lambda: sdk.first_replica,
        "popdist.getNumInstances": lambda: sdk.instances,
        "popdist.getInstanceIndex": lambda: sdk.instance,
        "popdist.tensorflow.set_ipu_config": lambda *args: set_ipu_config(sdk, *args),
        f"{_HOST}.allreduce": lambda *args: _popdist_allreduce(sdk, *args),
        f"{_HOST}.all_reduce": lambda *args: _popdist_allreduce(sdk, *args),
        "tensorflow.python.ipu.distributed.allreduce": (
            (lambda *args: _popdist_allreduce(sdk, *args)) if sdk.table.sdk >= "3.1" else _needs_horovod
        ),
        f"{_IPU}.utils.reset_ipu_seed": lambda *args: _reset_seed(sdk, *args),
        f"{_IPU}.ops.image_ops.normalise_image": _normalise_image,
        f"{_IPU}.ops.pipelining_ops.PipelineStageOptions": lambda *args: StageOptions(sdk.table, *args),
        "keras.ipu.FunctionalLayerPipelineStageAssignment": LayerAssignment,
        **_of_estimators(sdk),
        f"{_HOROVOD}.init": sdk.join,
        f"{_HOROVOD}.allreduce": lambda *args: _horovod_allreduce(sdk, *args),
    }


def _of_estimators(sdk: Sdk) -> Dict[str, Callable[..., Any]]:
    """The Estimators; TensorFlow's own are looked for when one of them is called."""

    def later(make: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            from ipu_standin import estimators

            return make(estimators)(*args, **kwargs)

        return call

    def estimator(name: str) -> Callable[..., Any]:
        return later(lambda module: functools.partial(module.IpuEstimator, sdk, name))

    def output(opt: Any, loss: Any, *more: Any) -> Any:
        from ipu_standin.estimators import OptimizerOutput

        if any(value is not None for value in more):
            raise NotImplementedError("the stand-in takes the optimizer and the loss only")
        return OptimizerOutput(opt, loss)

    return {
        f"{_IPU}.ipu_run_config.IPURunConfig": later(lambda module: functools.partial(module.make_ipu_run_config, sdk)),
        f"{_IPU}.ipu_run_config.RunConfig": later(lambda module: module.RunConfig),
        f"{_IPU}.ipu_estimator.IPUEstimator": estimator("IPUEstimator"),
        f"{_IPU}.ipu_estimator.IPUEstimatorSpec": later(lambda module: module.make_spec),
        f"{_IPU}.ipu_pipeline_estimator.IPUPipelineEstimator": estimator("IPUPipelineEstimator"),
        f"{_IPU}.ipu_pipeline_estimator.IPUPipelineEstimatorSpec": later(lambda module: module.PipelineSpec),
        f"{_IPU}.ops.pipelining_ops.OptimizerFunctionOutput": output,
        f"{_IPU}.optimizers.cross_replica_optimizer.CrossReplicaOptimizer": later(
            lambda module: functools.partial(module.CrossReplica, sdk)
        ),
        f"{_IPU}.ops.cross_replica_ops.cross_replica_mean": lambda value, group, name: _mean(sdk, value),
    }


def _mean(sdk: Sdk, value: Any) -> Any:
    """Whoever follows takes the mean of what all replicas come to, since these run one after the other."""
    sdk.is_averaged = True
    return value


def _needs_horovod(*args: Any) -> Any:
    raise NotImplementedError("the Horovod side of SDK 3.0 is not acted out; its host_collective_ops are")


def _popdist_allreduce(sdk: Sdk, value: Any, reduce_op: Any, tensor_name: Any) -> Any:
    import tensorflow as tf

    sdk.require_joined("allreduce()")
    value, how = tf.convert_to_tensor(value), reduce_op.value
    # The kernel is registered for whole numbers, half and float.
    if not (value.dtype.is_integer or value.dtype in (tf.float16, tf.float32)):
        raise tf.errors.NotFoundError(None, None, f"there is no PopdistAllReduce for {value.dtype.name}")
    if how not in ("SUM", "MEAN"):
        raise ValueError(f"allreduce() cannot {how}")
    total = sdk.sum_over_instances(value.numpy())
    return tf.constant(total if how == "SUM" else total / sdk.instances, value.dtype)


def _horovod_allreduce(sdk: Sdk, tensor: Any, op: Any, prescale_factor: float, postscale_factor: float) -> Any:
    import tensorflow as tf

    sdk.require_joined("allreduce()")
    tensor = tf.convert_to_tensor(tensor)
    total = sdk.sum_over_instances(tensor.numpy() * tensor.numpy().dtype.type(prescale_factor))
    if op is None or op == "Average":
        total = total / sdk.instances
    elif op != "Sum":
        raise NotImplementedError(f"allreduce() with {op!r}")
    return tf.constant(total * postscale_factor, tensor.dtype)


def _reset_seed(sdk: Sdk, seed: Any, device: str, cpu_device: str, identical: bool) -> None:
    if sdk.ipus is None:
        raise RuntimeError("reset_ipu_seed() before configure_ipu_system()")
    if type(seed) is not int or type(identical) is not bool:
        raise TypeError("reset_ipu_seed() takes a whole number and a bool")


def _normalise_image(image: Any, offsets: Any, scales: Any, scale: float, name: Any) -> Any:
    import tensorflow as tf

    if image.dtype not in (tf.float16, tf.float32, tf.uint8):
        raise TypeError(f"normalise_image() takes no {image.dtype.name}")
    if image.shape[-1] != 3:
        raise ValueError(f"normalise_image() takes 3 colours, not {image.shape[-1]}")
    made = tf.float16 if image.dtype == tf.uint8 else image.dtype
    offset, factor = (tf.cast(tf.constant(values, made), tf.float32) for values in (offsets, scales))
    values = (tf.cast(image, tf.float32) * scale - offset) * factor
    return tf.cast(tf.concat([values, tf.zeros_like(values[..., :1])], axis=-1), made)
