"""Moving batch statistics that are learnt like weights: once per update, from the micro-batches of all replicas.

Keras changes them in the forward pass. A pipeline does not do that properly, as the SDK itself warns; every replica
would have its own, of which the host sees one; and an instance that reads them alone, for a checkpoint, would wait for
the others. The published application learns them too.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, Mapping

import tensorflow as tf

from ipulaunch.workers.models.loss_scaling import LossScaling


@contextlib.contextmanager
def learnt_statistics() -> Iterator[None]:
    """Moving statistics made inside are variables like weights: the same on all replicas, and with gradients."""

    def create(next_creator: Any, **given: Any) -> Any:
        is_statistic = given.get("aggregation") == tf.VariableAggregation.MEAN and "moving_" in str(given.get("name"))
        if is_statistic and given.get("synchronization") == tf.VariableSynchronization.ON_READ:
            given.update(synchronization=tf.VariableSynchronization.AUTO, trainable=True)
        return next_creator(**given)

    with tf.variable_creator_scope(create):
        yield


class LearntBatchNorm(tf.keras.layers.Layer):  # type: ignore[misc]
    """A batch norm with the variables of one of Keras; its moving statistics have gradients."""

    def __init__(self, plain: Any) -> None:
        super().__init__(name=plain.name, dtype=plain.dtype_policy)
        self.epsilon, self.momentum = plain.epsilon, plain.momentum
        self.gamma, self.beta = plain.gamma, plain.beta
        self.moving_mean, self.moving_variance = plain.moving_mean, plain.moving_variance

    @property
    def trainable_weights(self) -> Any:
        return [self.gamma, self.beta, self.moving_mean, self.moving_variance]

    @property
    def non_trainable_weights(self) -> Any:
        return []

    def call(self, inputs: Any, training: Any = None) -> Any:
        mean, variance = tf.convert_to_tensor(self.moving_mean), tf.convert_to_tensor(self.moving_variance)
        if not training:
            outputs, _, _ = tf.compat.v1.nn.fused_batch_norm(
                inputs, self.gamma, self.beta, mean, variance, epsilon=self.epsilon, is_training=False
            )
            return outputs
        # None given, the SDK would take the type of the inputs for the mean, and refuse it beside a wider variance.
        none = tf.constant([], self.gamma.dtype)
        outputs, now, spread = tf.compat.v1.nn.fused_batch_norm(
            inputs, self.gamma, self.beta, none, none, epsilon=self.epsilon
        )
        return _with_gradients(outputs, mean, variance, tf.stop_gradient(now), tf.stop_gradient(spread))


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _with_gradients(outputs: Any, mean: Any, variance: Any, now: Any, spread: Any) -> Any:
    """The outputs as they are; the gradient of a moving statistic is how far it is from the micro-batch's."""

    def backward(upstream: Any) -> Any:
        return upstream, mean - now, variance - spread, tf.zeros_like(now), tf.zeros_like(spread)

    return outputs, backward


def shares_of(model: tf.keras.Model, replicas: int) -> Dict[str, float]:
    """By which share of its reduced gradient an update changes each moving statistic, by name.

    Their momentum counts weight updates, as in the published application. Replicas are summed: Keras divides their
    losses by their number, and these gradients come from no loss.
    """
    return {
        variable.name: (1 - layer.momentum) / replicas
        for layer in model.layers
        if isinstance(layer, LearntBatchNorm)
        for variable in (layer.moving_mean, layer.moving_variance)
    }


def adapt(optimizer: Any, scaling: LossScaling, shares: Mapping[str, float], summed: int) -> None:
    """Let an optimizer of Keras take the loss scale out of gradients, and statistics only their share of theirs.

    `summed` is how many losses, none of them divided by their number, the gradients are sums over.
    """
    made_by: Any = type(optimizer)

    class OnIpus(made_by):  # type: ignore[misc]
        def _create_slots(self, var_list: Any) -> None:
            super()._create_slots([variable for variable in var_list if variable.name not in shares])

        def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
            if var.name in shares:
                change = shares[var.name] * tf.cast(grad, tf.float32)
                return var.assign_sub(tf.cast(change, var.dtype), read_value=False)
            return super()._resource_apply_dense(scaling.unscaled(grad) / summed, var, apply_state)

    OnIpus.__name__ = made_by.__name__
    optimizer.__class__ = OnIpus
