"""In place of ipulaunch.workers.models.build: one dense layer on whatever a sample has, with a number per target."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np

import tensorflow as tf
from ipulaunch.topology.networks.network import Network, shapes


class Linear:
    """Outputs that are sums over all inputs; sums of NumPy along an axis, whose bits depend on nothing else."""

    def __init__(self, inputs: int, outputs: int, name: str) -> None:
        self.name = name
        first = np.random.standard_normal((inputs, outputs)).astype(np.float32) / np.float32(inputs)
        self.kernel = tf.Variable(first, name="kernel")
        self.bias = tf.Variable(np.zeros(outputs, np.float32), name="bias")
        self.weights = self.trainable_variables = [self.kernel, self.bias]
        self.non_trainable_variables: List[Any] = []

    def seen(self, inputs: Any) -> np.ndarray:
        """Small numbers, so that no learning rate of a test is too large."""
        values = np.log1p(np.maximum(np.asarray(inputs), 0).astype(np.float32))
        return values.reshape(len(values), -1) / np.float32(16)

    def outputs(self, inputs: Any) -> np.ndarray:
        return (self.seen(inputs)[:, :, np.newaxis] * self.kernel.value).sum(axis=1) + self.bias.value

    def gradients(self, inputs: Any, upstream: np.ndarray) -> List[np.ndarray]:
        """The gradients by kernel and bias, from that by the outputs."""
        each = self.seen(inputs)[:, :, np.newaxis] * upstream[:, np.newaxis, :]
        return [each.sum(axis=0), upstream.sum(axis=0)]


def build_model(network: Network, dropout: Any, native_half: Any = True) -> Linear:
    found = shapes(network)
    sizes = (int(np.prod(found[layer.name])) for layer in (network.layers[0], network.layers[-1]))
    return Linear(*sizes, name=network.name)


def stage_models(model: Linear, ends: Sequence[str]) -> List[Linear]:
    assert not ends, "a light model has one stage"
    return [model]
