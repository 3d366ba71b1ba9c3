"""Networks written down layer by layer: each method adds a layer and returns its name, for the next layer to read."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from ipulaunch.topology.networks.network import Layer, Network


class Builder:
    """A network in the making."""

    def __init__(self) -> None:
        self.layers: List[Layer] = []

    def network(self, name: str) -> Network:
        return Network(name, tuple(self.layers))

    def input(self, name: str, shape: Tuple[int, ...], dtype: str) -> str:
        return self._layer("input", name, shape=shape, dtype=dtype)

    def normalise(self, name: str, x: str, mean: Sequence[float], std: Sequence[float]) -> str:
        """Pixels minus their mean, divided by their standard deviation."""
        return self._layer("normalise", name, x, mean=tuple(mean), std=tuple(std))

    def density(self, name: str, x: str, how: str) -> str:
        """Particle counts as densities."""
        return self._layer("density", name, x, how=how)

    def conv(
        self,
        name: str,
        x: str,
        filters: int,
        kernel: int,
        strides: int = 1,
        padding: str = "same",
        bias: bool = True,
        initializer: str = "glorot_uniform",
    ) -> str:
        """A convolution with as many dimensions as its input has besides the channels."""
        return self._layer(
            *("conv", name, x),
            filters=filters,
            window=kernel,
            strides=strides,
            padding=padding,
            bias=bias,
            initializer=initializer,
        )

    def pad(self, name: str, x: str, width: int) -> str:
        """Zeros around the edges."""
        return self._layer("pad", name, x, width=width)

    def batch_norm(self, name: str, x: str, momentum: float, epsilon: float, gamma: str = "ones") -> str:
        return self._layer("batch_norm", name, x, momentum=momentum, epsilon=epsilon, gamma=gamma)

    def group_norm(self, name: str, x: str, groups: int, epsilon: float, gamma: str = "ones") -> str:
        return self._layer("group_norm", name, x, groups=groups, epsilon=epsilon, gamma=gamma)

    def downsample(self, name: str, x: str) -> str:
        """Every second pixel along each side, followed by as many channels of zeros."""
        return self._layer("downsample", name, x)

    def activation(self, name: str, x: str, function: str) -> str:
        return self._layer("activation", name, x, function=function)

    def pool(
        self, name: str, x: str, how: str, size: int, strides: Optional[int] = None, padding: str = "valid"
    ) -> str:
        """The max or the average of each window; windows do not overlap unless strides say so."""
        return self._layer(f"{how}_pool", name, x, window=size, strides=strides or size, padding=padding)

    def global_average_pool(self, name: str, x: str) -> str:
        return self._layer("global_average_pool", name, x)

    def add(self, name: str, *inputs: str) -> str:
        return self._layer("add", name, *inputs)

    def flatten(self, name: str, x: str) -> str:
        return self._layer("flatten", name, x)

    def dense(self, name: str, x: str, units: int, activation: Optional[str] = None) -> str:
        return self._layer("dense", name, x, units=units, activation=activation, bias=True)

    def dropout(self, name: str, x: str, rate: float) -> str:
        return self._layer("dropout", name, x, rate=rate)

    def scale(self, name: str, x: str, factor: float) -> str:
        """The whole input times a constant."""
        return self._layer("scale", name, x, factor=factor)

    def _layer(self, kind: str, name: str, *inputs: str, **options: Any) -> str:
        self.layers.append(Layer(name, kind, inputs, options))
        return name
