"""The optimizer that the settings ask for, and its state in and out of checkpoints."""

from __future__ import annotations

import math
from typing import Any, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.configs.settings.optimization import Optimizer
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.workers.models.schedules import learning_rate
from ipulaunch.workers.models.variables import read_variables

# The change of a weight, and the new values of its states.
Step = Tuple[Any, List[Tuple[Any, Any]]]
# The Keras 2 classes where TensorFlow has both kinds, since the IPU's Keras has only those.
_KERAS = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)

# What layers call the parameters of normalisations, and biases.
_NOT_ADAPTED = ("beta", "bias", "gamma")


class Wide(_KERAS.Optimizer):  # type: ignore[misc, name-defined]
    """An optimizer whose state has 32 bits."""

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None) -> Any:
        """A state of a weight; Keras would give it the type of the weight."""

        def in_32_bits(create: Any, **given: Any) -> Any:
            first = given.pop("initial_value")
            given["dtype"] = tf.float32
            return create(initial_value=lambda: tf.cast(first() if callable(first) else first, tf.float32), **given)

        with tf.variable_creator_scope(in_32_bits):
            return super().add_slot(var, slot_name, initializer, shape)

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        if var.dtype.base_dtype == tf.float32:
            return super()._resource_apply_dense(grad, var, apply_state)
        change, states = self._step(tf.cast(grad, tf.float32), var, self._decayed_lr(tf.float32))
        updates = [state.assign(value, read_value=False) for state, value in states]
        return tf.group(*updates, var.assign_sub(tf.cast(change, var.dtype), read_value=False))

    def _step(self, gradient: Any, var: Any, rate: Any) -> Step:
        raise NotImplementedError

    def _number(self, name: str) -> Any:
        """A hyperparameter, in 32 bits."""
        return self._get_hyper(name, tf.float32)


class WideAdam(Wide, _KERAS.Adam):  # type: ignore[misc, name-defined]
    """Adam of Keras."""

    def _step(self, gradient: Any, var: Any, rate: Any) -> Step:
        first, second = self.get_slot(var, "m"), self.get_slot(var, "v")
        beta_1, beta_2 = self._number("beta_1"), self._number("beta_2")
        updates = tf.cast(self.iterations + 1, tf.float32)
        mean = beta_1 * first + (1 - beta_1) * gradient
        squares = beta_2 * second + (1 - beta_2) * tf.square(gradient)
        unbiased = tf.sqrt(1 - tf.pow(beta_2, updates)) / (1 - tf.pow(beta_1, updates))
        return rate * unbiased * mean / (tf.sqrt(squares) + self.epsilon), [(first, mean), (second, squares)]


class WideAdadelta(Wide, _KERAS.Adadelta):  # type: ignore[misc, name-defined]
    """Adadelta of Keras."""

    def _step(self, gradient: Any, var: Any, rate: Any) -> Step:
        of_gradients, of_changes = self.get_slot(var, "accum_grad"), self.get_slot(var, "accum_var")
        rho = self._number("rho")
        squares = rho * of_gradients + (1 - rho) * tf.square(gradient)
        change = tf.sqrt(of_changes + self.epsilon) * tf.math.rsqrt(squares + self.epsilon) * gradient
        changes = rho * of_changes + (1 - rho) * tf.square(change)
        return rate * change, [(of_gradients, squares), (of_changes, changes)]


class WideRmsProp(Wide, _KERAS.RMSprop):  # type: ignore[misc, name-defined]
    """RMSprop of Keras, not centered."""

    def _step(self, gradient: Any, var: Any, rate: Any) -> Step:
        state, rho = self.get_slot(var, "rms"), self._number("rho")
        squares = rho * state + (1 - rho) * tf.square(gradient)
        if not self._momentum:
            return rate * gradient / (tf.sqrt(squares) + self.epsilon), [(state, squares)]
        velocity = self.get_slot(var, "momentum")
        # With momentum, Keras has its epsilon under the root.
        change = self._number("momentum") * velocity + rate * gradient * tf.math.rsqrt(squares + self.epsilon)
        return change, [(state, squares), (velocity, change)]


def make_optimizer(settings: WorkloadSettings, batch: Batch, updates_per_epoch: int) -> Any:
    """A Keras 2 optimizer with its learning rate over time, L2 regularization and weight decay."""
    chosen = settings.optimizer
    rate = learning_rate(settings.schedule, scaled_rate(chosen, batch), updates_per_epoch, settings.training.num_epochs)
    if chosen.name == "adadelta":
        optimizer = Adadelta(rate)
    elif chosen.name == "adam":
        optimizer = Adam(rate)
    elif chosen.name == "lars":
        optimizer = Lars(rate, momentum=chosen.momentum, name="LARS")
        optimizer.eeta, optimizer.adapted_decay = chosen.eeta, chosen.weight_decay
    elif chosen.name == "rmsprop":
        optimizer = RmsProp(rate, rho=smoothing(chosen, batch), momentum=chosen.momentum)
    else:
        optimizer = Sgd(rate, momentum=chosen.momentum)
    if chosen.name == "lars":
        optimizer.epsilon = chosen.epsilon or tf.keras.backend.epsilon()  # as published, where 0 is for none given
    elif chosen.epsilon is not None:
        optimizer.epsilon = chosen.epsilon  # not as an argument, where Keras takes 0 for none given
    if chosen.name != "lars":
        optimizer.weight_decay = chosen.weight_decay
    optimizer.l2_regularization = chosen.l2_regularization
    return optimizer


def scaled_rate(settings: Optimizer, batch: Batch) -> float:
    """The learning rate for this many replicas, or samples."""
    factors = {
        "none": 1.0,
        "linear": float(batch.replicas),
        "sqrt": math.sqrt(batch.replicas),
        "batch": float(batch.global_size),
    }
    return settings.learning_rate * factors[settings.lr_scaling]


def smoothing(settings: Optimizer, batch: Batch) -> float:
    """RMSprop's rho; from an exponent, old samples are forgotten as fast with any global batch."""
    if settings.rho_exponent is None:
        return settings.rho
    rho = 1 - 2**settings.rho_exponent * batch.global_size
    if not 0 <= rho < 1:
        largest = math.floor(-math.log2(batch.global_size))
        raise SettingsError(
            f"rho = 1 - 2^{settings.rho_exponent:g} x {batch.global_size} = {rho:g} is not from 0 to 1",
            hint=f"for a global batch of {batch.global_size} use an optimizer.rho_exponent of at most {largest}",
        )
    return rho


def optimizer_state(optimizer: Any) -> List[np.ndarray]:
    """The optimizer's state: the number of updates, then a kind of state after the other, each for all variables."""
    return read_variables(optimizer.weights)


def create_variables(optimizer: Any, variables: Sequence[Any]) -> None:
    """Make the state of an optimizer of these trainable variables, under the names that its first update gives it."""
    with tf.name_scope(optimizer._name):
        optimizer._create_all_weights(list(variables))


def restore_optimizer(optimizer: Any, variables: Sequence[Any], arrays: Sequence[np.ndarray]) -> None:
    """Give an optimizer of these trainable variables the state that one like it had."""
    create_variables(optimizer, variables)
    shapes = [tuple(weight.shape) for weight in optimizer.weights]
    found = [array.shape for array in arrays]
    if shapes != found:
        raise DataError(
            f"the optimizer's state has {len(found)} arrays of {sum(array.size for array in arrays)} numbers, and"
            f" {type(optimizer).__name__} takes {len(shapes)} of {sum(math.prod(shape) for shape in shapes)}",
            hint="continue with the model and the optimizer that the checkpoint was written with",
        )
    for weight, array in zip(optimizer.weights, arrays):
        weight.assign(array)


def _as_32_bits(tensor: Any) -> Any:
    return tf.cast(tensor, tf.float32)


class _Regularized(_KERAS.Optimizer):  # type: ignore[misc, name-defined]
    """What we add to an optimizer of Keras: L2 regularization inside its state, weight decay outside of it.

    Factors this small times a weight need 32 bits, also where the weight has 16.
    """

    l2_regularization = 0.0
    weight_decay = 0.0

    def _decayed_lr(self, var_dtype: Any) -> Any:
        """The rate of this update; Keras would count the updates in the weights' type, and float16 ends at 65504."""
        rate = self._get_hyper("learning_rate")
        return tf.cast(rate(self.iterations) if callable(rate) else rate, var_dtype)

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        if self.l2_regularization:
            grad = _as_32_bits(grad) + self.l2_regularization * _as_32_bits(var)
        grad = tf.cast(grad, tf.float32 if isinstance(self, Wide) else var.dtype)
        before = []
        if self.weight_decay:
            with tf.control_dependencies([grad]):  # which has read the weight
                share = self._decayed_lr(tf.float32) * self.weight_decay
                before = [var.assign_sub(tf.cast(share * _as_32_bits(var), var.dtype), read_value=False)]
        with tf.control_dependencies(before):
            return super()._resource_apply_dense(grad, var, apply_state)


class _AdaptedByLayer(_KERAS.SGD):  # type: ignore[misc, name-defined]
    """LARS: gradient descent whose steps are a share of the size of the weights that they change."""

    eeta = 0.001
    epsilon = 0.0
    adapted_decay = 0.0

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        gradient, weight = _as_32_bits(grad), _as_32_bits(var)
        rate = self._decayed_lr(tf.float32)
        if _is_adapted(var):
            rate = rate * self._trust(tf.norm(weight), tf.norm(gradient))
            gradient += self.adapted_decay * weight
        change = tf.cast(-rate * gradient, var.dtype)
        if not self._momentum:
            return var.assign_add(change, read_value=False)
        velocity = self.get_slot(var, "momentum")
        change += self._get_hyper("momentum", var.dtype) * velocity
        return tf.group(velocity.assign(change, read_value=False), var.assign_add(change, read_value=False))

    def _trust(self, weight: Any, gradient: Any) -> Any:
        """The local rate; 1 where there is nothing to compare, as for weights that begin at 0."""
        sum_of_steps = gradient + self.adapted_decay * weight + self.epsilon
        local = tf.math.divide_no_nan(self.eeta * weight, sum_of_steps)
        return tf.where(tf.minimum(weight, gradient) > 0, local, 1.0)


def _is_adapted(variable: Any) -> bool:
    return variable.name.split("/")[-1].split(":")[0] not in _NOT_ADAPTED


class Adadelta(_Regularized, WideAdadelta):
    """Adadelta of Keras."""


class Adam(_Regularized, WideAdam):
    """Adam of Keras."""


class Lars(_Regularized, _AdaptedByLayer):
    """LARS, with L2 regularization before its rates are found."""


class RmsProp(_Regularized, WideRmsProp):
    """RMSprop of Keras."""


class Sgd(_Regularized, _KERAS.SGD):  # type: ignore[misc, name-defined]
    """Gradient descent of Keras, with or without momentum."""
