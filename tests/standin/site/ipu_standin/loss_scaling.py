"""ALSOptimizer: a loss scaling factor that follows the gradients in half precision, around an optimizer of Keras."""

from __future__ import annotations

from typing import Any, List

import tensorflow as tf

from ipu_standin.sdk import Sdk

NAME = "keras.ipu.optimizers.ALSOptimizer"
_OPTIMIZER = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers).Optimizer
_LARGEST_HALF = 65504.0  # what SDK 3.0 counts as an overflow


def is_als(optimizer: Any) -> bool:
    return bool(getattr(optimizer, "is_als_of_the_stand_in", False))


def make_als(sdk: Sdk) -> Any:
    """The class of this SDK. Before 3.1 it unscales where it makes gradients, later where they are applied."""
    signature, unscales_early = sdk.table.classes[NAME], sdk.table.sdk < "3.1"

    class ALSOptimizer(_OPTIMIZER):  # type: ignore[misc, valid-type]
        is_als_of_the_stand_in = True

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            sdk.calls.checked("ALSOptimizer", signature, lambda *given: None)(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            first, most = given["initial_loss_scaling_factor"], given["max_loss_scaling_factor"]
            for factor in (first, most, given["increase_factor"]):
                if factor & (factor - 1) or not factor:  # of a float this is a TypeError
                    raise ValueError(f"{factor} is not a power of two")
            if first * given["increase_factor"] >= most:
                raise ValueError(f"the initial factor {first} is too near to the largest, {most}")
            super().__init__(given["name"])
            self._opt, self.given = given["opt"], given
            self.edge = _LARGEST_HALF if unscales_early else float(given["histogram_bin_edge"])
            start = 1 if unscales_early else 0
            self._hist = tf.Variable([0.0, 0.0], trainable=False, name="gradient_histogram")
            self._n = tf.Variable(start, trainable=False, dtype=tf.int32, name="lsf_update_counter")
            self._lsf = tf.Variable(float(first), trainable=False, name="loss_scaling_factor")
            if not unscales_early:
                self._prev_lsf = tf.Variable(float(first), trainable=False, name="prev_loss_scaling_factor")

        def state(self) -> List[Any]:
            """What moves the factor."""
            return [self._hist, self._n, self._lsf, *([] if unscales_early else [self._prev_lsf])]

        def get_config(self) -> Any:
            return {**super().get_config(), "inner_optimizer_type": type(self._opt)}

        @property
        def loss_scaling_factor(self) -> Any:
            return tf.convert_to_tensor(self._lsf)

        def get_scaled_loss(self, loss: Any) -> Any:
            return tf.cast(self._lsf, loss.dtype) * loss

        def get_gradients(self, loss: Any, params: Any) -> Any:
            gradients = _OPTIMIZER.get_gradients(self, self.get_scaled_loss(loss), params)
            if unscales_early:
                gradients = [self.get_unscaled_gradients(gradient) for gradient in gradients]
            return gradients

        def _add_grads(self, gradient: Any) -> None:
            if gradient.dtype == tf.float16 and not self.given["captured_grads_only"]:
                over = tf.math.count_nonzero(tf.abs(tf.cast(gradient, tf.float32)) >= self.edge, dtype=tf.float32)
                size = tf.cast(tf.size(gradient), tf.float32)
                self._hist.assign_add(tf.stack([size - over, over]))

        def _get_unscaled_gradients(self, gradient: Any) -> Any:
            return gradient / tf.cast(self._lsf, gradient.dtype)

        if unscales_early:

            def get_unscaled_gradients(self, gradient: Any) -> Any:
                ALSOptimizer._add_grads(self, gradient)
                return ALSOptimizer._get_unscaled_gradients(self, gradient)

        def _do_lsf_update(self) -> None:
            every, factor = self.given["update_frequency"], self.given["increase_factor"]
            count = int(self._n.numpy())
            if count == 0 or count % every:
                self._n.assign(count + 1)
                return
            fine, over = self._hist.numpy()
            ratio = over / (fine + over) if fine + over else float("nan")
            new = self._lsf.numpy() / factor if ratio > self.given["ratio_threshold"] else self._lsf.numpy() * factor
            if 1 <= new < self.given["max_loss_scaling_factor"]:
                if not unscales_early:
                    self._prev_lsf.assign(self._lsf)
                self._lsf.assign(new)
            self._hist.assign([0.0, 0.0])
            self._n.assign(1 if unscales_early else 0)

        def unscaled(self, gradients: Any) -> Any:
            """What happens to gradients before they are accumulated, or applied."""
            if unscales_early:
                return gradients
            for gradient in gradients:
                self._add_grads(gradient)
            return [self._get_unscaled_gradients(gradient) for gradient in gradients]

        def apply_gradients(
            self, grads_and_vars: Any, captured_grads: Any = None, global_step: Any = None, name: Any = None
        ) -> Any:
            gradients, variables = zip(*grads_and_vars)
            pairs = list(zip(self.unscaled(gradients), variables))
            self._do_lsf_update()
            # Its parent takes the name for whether to reduce over replicas: by default they are not.
            return super().apply_gradients(pairs, global_step, name)

        def apply_accumulated(self, pairs: Any) -> Any:
            """As if an optimizer around this one applied what it has unscaled and accumulated before."""
            return _OPTIMIZER.apply_gradients(self, pairs)

        def _create_all_weights(self, variables: Any) -> None:
            _ = self.iterations
            self._opt._create_all_weights(variables)

        def _prepare(self, variables: Any) -> None:
            self._opt._prepare(variables)

        def _aggregate_gradients(self, pairs: Any) -> Any:
            return self._opt._aggregate_gradients(pairs)

        def _transform_gradients(self, pairs: Any) -> Any:
            return self._opt._transform_gradients(pairs)

        def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any) -> Any:
            return self._opt._resource_apply_dense(grad, var, apply_state)

    return ALSOptimizer
