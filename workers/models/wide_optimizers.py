"""Adam, Adadelta and RMSprop of Keras, which divide by squares of gradients, for weights of 16 bits as well.

Keras keeps the state of an optimizer in the type of the weights. In 16 bits, the thousandth of a square that enters
Adam's state is 0 for gradients below 0.005. Adam then divides by its epsilon, and weights leave the range of 16 bits in
a few updates. So here the state has 32 bits, and so has what is computed from it. Weights of 32 bits train as Keras
trains them.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import tensorflow as tf

# The Keras 2 classes where TensorFlow has both kinds, since the IPU's Keras has only those.
_KERAS = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)

# The change of a weight, and the new values of its states.
Step = Tuple[Any, List[Tuple[Any, Any]]]


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
