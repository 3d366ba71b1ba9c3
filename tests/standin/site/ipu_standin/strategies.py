"""The distribution strategies: scopes that mark the models made inside them as those of the IPU.

PopDist's makes mirrored variables, as the SDK's does: they convert to no Python number, every one that is made begins
with the value of instance 0, and a variable that is synchronised on read is reduced over all instances by who reads it
on the host. IPUStrategy makes plain variables.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, distribute_utils, one_device_strategy, values

from ipu_standin.sdk import Sdk

_DEVICE = "/cpu:0"
_SYNCHRONIZATION = tf.VariableSynchronization
_CLASSES = {
    "VariableClass": values.DistributedVariable,
    _SYNCHRONIZATION.ON_WRITE: values.MirroredVariable,
    _SYNCHRONIZATION.ON_READ: values.SyncOnReadVariable,
}
_POLICIES = {_SYNCHRONIZATION.ON_WRITE: values.OnWritePolicy, _SYNCHRONIZATION.ON_READ: values.OnReadPolicy}


class IpuStrategyBase(tf.distribute.OneDeviceStrategy):  # a kind that stock Keras lets mixed precision run in
    """What models know their strategy by."""

    has_extensions: bool
    reduces_metrics: bool  # over all replicas of all instances


def make_strategy(sdk: Sdk, full_name: str) -> Any:
    """The strategy class of this name."""
    signature, is_popdist = sdk.table.classes[full_name], full_name.endswith("PopDistStrategy")

    class Strategy(IpuStrategyBase):
        reduces_metrics = is_popdist

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            def check(**arguments: Any) -> None:
                if is_popdist and sdk.table.sdk == "2.6":
                    sdk.require_joined("PopDistStrategy()")
                if is_popdist:
                    sdk.join()
                self.has_extensions = arguments["enable_keras_extensions"]

            by_name = signature.replace(
                parameters=[p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values()]
            )
            bound = signature.bind(*args, **kwargs)
            tf.distribute.Strategy.__init__(self, Mirrored(self, sdk) if is_popdist else Plain(self))
            sdk.calls.checked(full_name.rsplit(".", 1)[-1], by_name, check)(**bound.arguments)

        def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
            if not is_popdist and tf.executing_eagerly() and not _is_traced(fn):
                raise ValueError(f"{self.__class__.__name__}.run() runs nothing eagerly: give it a tf.function")
            return super().run(fn, args, kwargs, options)

    Strategy.__name__ = full_name.rsplit(".", 1)[-1]
    return Strategy


def _is_traced(fn: Any) -> bool:
    """Whether this is a function of TensorFlow, which becomes a graph, or one such graph."""
    return hasattr(fn, "get_concrete_function") or hasattr(fn, "captured_inputs")


class OneDevice(one_device_strategy.OneDeviceExtended):  # type: ignore[misc]
    """One device in this process, whose replicas TensorFlow does not know of."""

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy, _DEVICE)
        self.is_on_device = False
        self.sums: Dict[int, Any] = {}  # over replicas, by what the one has that stands for all

    @contextlib.contextmanager
    def on_device(self) -> Iterator[None]:
        before, self.is_on_device = self.is_on_device, True
        try:
            yield
        finally:
            self.is_on_device = before

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        with self.on_device():
            return super()._call_for_each_replica(fn, args, kwargs)

    def reduced_on_device(self, reduce_op: Any, value: Any) -> Any:
        """Over the replicas of all instances."""
        if reduce_op not in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN):
            raise ValueError(f"the device has no reduction {reduce_op}")
        return self.sums.get(id(value), value)


class Plain(OneDevice):
    """IPUStrategy's: the host reduces nothing."""

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        def checked(*args: Any, **kwargs: Any) -> Any:
            if hasattr(fn, "get_concrete_function"):
                graph = fn.get_concrete_function(*args, **kwargs)
                for what, tensors in (("an input", graph.inputs), ("an output", graph.outputs)):
                    if any(tensor.dtype == tf.float64 for tensor in tensors):
                        raise TypeError(f"{what} of the function is float64, which the IPU does not have")
            return fn(*args, **kwargs)

        return super()._call_for_each_replica(checked, args, kwargs)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        return self.reduced_on_device(reduce_op, value) if self.is_on_device else value


class Mirrored(OneDevice):
    """PopDist's: one device for each instance, with all replicas of all instances in sync."""

    def __init__(self, strategy: Any, sdk: Sdk) -> None:
        super().__init__(strategy)
        self.sdk = sdk

    @property
    def _num_replicas_in_sync(self) -> int:
        return self.sdk.replicas

    def _create_variable(self, next_creator: Any, **given: Any) -> Any:
        given.pop("colocate_with", None)

        def create(**given: Any) -> Any:
            initial, dtype = given["initial_value"], given.get("dtype")

            def shared() -> Any:
                value = initial() if callable(initial) else initial
                value = getattr(value, "wrapped_value", value)  # of a checkpoint
                return self._from_first(tf.convert_to_tensor(value, dtype))

            return [next_creator(**{**given, "initial_value": shared})]

        return distribute_utils.create_mirrored_variable(
            self._container_strategy(), create, _CLASSES, _POLICIES, **given
        )

    def _from_first(self, value: Any) -> Any:
        """The value of instance 0: all instances make the same variables in the same order."""
        if self.sdk.instances == 1:
            return value
        self.sdk.require_joined("a variable")
        mine = value.numpy()
        wide = mine.astype(np.int32) if mine.dtype == bool else mine
        found = self.sdk.sum_over_instances(wide if self.sdk.instance == 0 else np.zeros_like(wide))
        return tf.constant(np.asarray(found).astype(mine.dtype))

    def value_container(self, value: Any) -> Any:
        return distribute_utils.value_container(value)

    def read_var(self, variable: Any) -> Any:
        return variable.read_value()

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if isinstance(value, values.DistributedValues):
            (value,) = value.values
        if self.is_on_device:
            return tf.convert_to_tensor(self.reduced_on_device(reduce_op, value))
        if self.sdk.instances == 1:
            return tf.convert_to_tensor(value)
        total = self.sdk.sum_over_instances(tf.convert_to_tensor(value).numpy())
        return tf.constant(total if reduce_op == tf.distribute.ReduceOp.SUM else total / self.sdk.instances)

    def _update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        """Optimizers get the one component of a variable, not the variable."""
        (component,) = var.values
        with tf.device(_DEVICE), distribute_lib.UpdateContext(0):
            args, kwargs = (distribute_utils.select_replica(0, given) for given in (args, kwargs))
            return distribute_utils.update_regroup(self, [fn(component, *args, **kwargs)], group)


def component(variable: Any) -> Any:
    """What this process has of a variable, which reading it does not reduce."""
    return variable.values[0] if isinstance(variable, values.DistributedVariable) else variable
