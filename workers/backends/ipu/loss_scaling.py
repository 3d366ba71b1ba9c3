"""Automatic loss scaling on IPUs: the SDK's ALSOptimizer around ours, with what it leaves out."""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterable, List, Tuple

import tensorflow as tf

from ipulaunch.workers.backends.ipu.sdk import load_als

_OPTIMIZER = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers).Optimizer


def follow_gradients(optimizer: Any, first: float, statistics: Collection[str]) -> Any:
    """The optimizer inside one whose loss scale follows the gradients; it begins with the first one.

    Moving statistics have gradients that come from no loss: these are neither counted nor divided by the scale.
    """
    base = load_als()
    unscales_early = hasattr(base, "get_unscaled_gradients")  # SDK 3.0: where gradients are made
    unscaled_as_made: Dict[int, Any] = {}  # by identity; the tensors are kept, so that no other takes its place

    def mark(pairs: Iterable[Tuple[Any, Any]]) -> None:
        unscaled_as_made.clear()
        unscaled_as_made.update((id(part), part) for part, variable in pairs if variable.name in statistics)

    class FollowsGradients(base):  # type: ignore[misc, valid-type]
        def get_gradients(self, loss: Any, params: Any) -> Any:
            if not unscales_early:
                gradients = super().get_gradients(loss, params)
                mark(zip(gradients, params))
                return gradients
            gradients = _OPTIMIZER.get_gradients(self, self.get_scaled_loss(loss), params)
            mark(zip(gradients, params))
            return [self.get_unscaled_gradients(gradient) for gradient in gradients]

        def apply_gradients(
            self, grads_and_vars: Any, captured_grads: Any = None, global_step: Any = None, name: Any = None
        ) -> Any:
            # The SDK hands its name on as whether to sum over replicas, so they would train apart. Summed before they
            # are counted, gradients give all replicas one scale.
            pairs = list(self._aggregate_gradients(list(grads_and_vars)))
            mark(pairs)
            return super().apply_gradients(pairs, captured_grads, global_step, name)

        def _add_grads(self, grads: Any) -> None:
            if id(grads) not in unscaled_as_made:
                super()._add_grads(grads)

        def _get_unscaled_gradients(self, grads: Any) -> Any:
            return grads if id(grads) in unscaled_as_made else super()._get_unscaled_gradients(grads)

        def get_unscaled_gradients(self, grads: Any) -> Any:
            return grads if id(grads) in unscaled_as_made else super().get_unscaled_gradients(grads)

    made = FollowsGradients(optimizer, initial_loss_scaling_factor=int(first))
    made._create_hypers()  # on the host, since the SDK would make them inside the first device call
    return made


def state_of(optimizer: Any) -> List[Any]:
    """What a checkpoint has to hold: the scale, and what the SDK has counted since it last moved.

    The scale and the count of updates come first, as in the checkpoints of the CPU backend.
    """
    found = [optimizer._lsf, optimizer._n, optimizer._hist]
    return [*found, optimizer._prev_lsf] if hasattr(optimizer, "_prev_lsf") else found


class UpdateCount(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Counts the updates of the optimizer inside, whose own count the SDK leaves as it is."""

    def __init__(self, optimizer: Any, updates_per_call: int) -> None:
        super().__init__()
        self.optimizer, self.updates_per_call = optimizer, updates_per_call

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        self.optimizer.iterations.assign_add(self.updates_per_call)
