"""A model as a chain of pipeline stages: forward through all of them, backward through all of them."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence, Tuple

import tensorflow as tf


class Stages:
    """Stages on devices of their own; a model that is not divided is a single stage."""

    def __init__(self, models: Sequence[tf.keras.Model], weights: Sequence[Any]) -> None:
        self.models, self.weights = list(models), list(weights)
        cpus = [device.name for device in tf.config.list_logical_devices("CPU")]
        self.devices = [cpus[number % len(cpus)] for number in range(len(self.models))]

    def outputs(self, inputs: Any) -> Any:
        """What the last stage gives, outside of training."""
        for model, device in zip(self.models, self.devices):
            with tf.device(device):
                inputs = model(inputs, training=False)
        return inputs

    def gradients(self, inputs: Any, loss_of: Callable[[Any], Any]) -> Tuple[List[Any], Any]:
        """The gradients of the loss by all weights, in their order, and the outputs.

        Every stage has a tape of its own: backward, a stage takes the gradient of its outputs from the one after it,
        as an IPU takes it from the next.
        """
        links: List[Any] = [inputs]
        tapes: List[Any] = []
        for model, device in zip(self.models, self.devices):
            with tf.device(device), tf.GradientTape() as tape:
                if tapes:
                    tape.watch(links[-1])
                links.append(model(links[-1], training=True))
            tapes.append(tape)
        with tf.device(self.devices[-1]), tf.GradientTape() as tape:
            tape.watch(links[-1])
            loss = loss_of(links[-1])
        upstream = tape.gradient(loss, links[-1])
        found = {}
        for number in reversed(range(len(self.models))):
            weights = self.models[number].trainable_variables
            wanted = [*weights, links[number]] if number else weights
            with tf.device(self.devices[number]):
                parts = tapes[number].gradient(links[number + 1], wanted, output_gradients=upstream)
            found.update({id(weight): part for weight, part in zip(weights, parts)})
            upstream = parts[-1]
        return [found[id(weight)] for weight in self.weights], links[-1]
