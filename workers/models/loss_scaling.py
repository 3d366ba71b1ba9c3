"""Loss scaling: a factor on the loss that keeps small 16-bit gradients from 0, and comes out of them again."""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

# float16 ends at 65504. A gradient near it is about to overflow, or did in some replica and was averaged since.
_TOO_LARGE = 2.0**15
# After a doubling there is still a factor of 4 up to what is too large, so that a doubling seldom costs an update.
_WELL_INSIDE = 2.0**12
# From 1 to 128 in 700 updates, less than an epoch of CIFAR-10; and a doubling too many costs one update in a hundred.
UPDATES_TO_DOUBLE = 100
# The scale itself stays a number that float16 has, and neither 0 nor infinite: it could never leave these.
_SMALLEST, _LARGEST = 2.0**-14, 2.0**15


class LossScaling:
    """A scale that stays as it is or, if automatic, follows the gradients.

    Automatic scaling judges gradients that all instances have reduced, so that all come to the same scale.
    """

    def __init__(self, scale: float, automatic: bool = False) -> None:
        self.is_automatic = automatic
        self.scale: Any = tf.constant(scale, tf.float32)
        self.variables: List[Any] = []  # what a checkpoint has to hold
        if automatic:
            self.scale = tf.Variable(scale, trainable=False, dtype=tf.float32, name="loss_scale")
            self.good_updates = tf.Variable(0, trainable=False, dtype=tf.int32, name="good_updates")
            self.variables = [self.scale, self.good_updates]

    def scaled(self, loss: Any) -> Any:
        """The loss to differentiate."""
        return loss * tf.cast(self.scale, loss.dtype)

    def unscaled(self, gradient: Any) -> Any:
        """The gradient of the loss itself, in 32 bits, since 16 would lose it again."""
        return tf.cast(gradient, tf.float32) / self.scale

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]  # it would convert a call per weight
    def resolve(self, gradients: Sequence[Any]) -> List[Any]:
        """The gradients of the loss itself, from reduced scaled ones; then the scale moves, if automatic.

        All are 0 if some are too large: plain gradient descent, the only optimizer with automatic scaling, then
        leaves the weights alone.
        """
        unscaled = [self.unscaled(gradient) for gradient in gradients]
        if not self.is_automatic:
            return unscaled
        is_good = _all_within(gradients, _TOO_LARGE)
        # Chosen, not multiplied: 0 x infinity is not 0.
        unscaled = [tf.where(is_good, gradient, tf.zeros_like(gradient)) for gradient in unscaled]
        with tf.control_dependencies(unscaled):
            self._follow(is_good, _all_within(gradients, _WELL_INSIDE))
        return unscaled

    def _follow(self, is_good: Any, is_well_inside: Any) -> None:
        good_updates = tf.where(is_well_inside, self.good_updates + 1, 0)
        doubles = good_updates >= UPDATES_TO_DOUBLE
        factor = tf.where(doubles, 2.0, tf.where(is_good, 1.0, 0.5))
        self.scale.assign(tf.clip_by_value(self.scale * factor, _SMALLEST, _LARGEST))
        self.good_updates.assign(tf.where(doubles, 0, good_updates))


def _all_within(gradients: Sequence[Any], limit: float) -> Any:
    """Whether no element is beyond the limit; what is not a number is."""
    return tf.reduce_all([tf.reduce_all(tf.abs(tf.cast(gradient, tf.float32)) <= limit) for gradient in gradients])
