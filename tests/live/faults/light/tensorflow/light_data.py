"""Streams as chains of generators: each element is made when it is asked for."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, Callable, Iterator, Tuple

import numpy as np


class Options:
    """Options that are set and have no effect."""

    def __init__(self) -> None:
        self.autotune, self.threading = SimpleNamespace(), SimpleNamespace()


class Dataset:
    """What can be iterated over, again and again."""

    def __init__(self, elements: Callable[[], Iterator[Any]]) -> None:
        self.elements = elements

    def __iter__(self) -> Iterator[Any]:
        return self.elements()

    @staticmethod
    def range(start: int, stop: int) -> Dataset:
        return Dataset(lambda: map(np.int64, range(start, stop)))

    @staticmethod
    def from_tensor_slices(array: Any) -> Dataset:
        return Dataset(lambda: iter(np.asarray(array)))

    @staticmethod
    def zip(datasets: Tuple[Dataset, ...]) -> Dataset:
        return Dataset(lambda: zip(*datasets))

    def map(self, function: Callable[..., Any], threads: Any = None, deterministic: Any = None) -> Dataset:
        return Dataset(lambda: (_call(function, element) for element in self))

    def flat_map(self, function: Callable[..., Dataset]) -> Dataset:
        return Dataset(lambda: itertools.chain.from_iterable(_call(function, element) for element in self))

    def take(self, count: int) -> Dataset:
        return Dataset(lambda: itertools.islice(self, count))

    def prefetch(self, count: int) -> Dataset:
        return self

    def with_options(self, options: Options) -> Dataset:
        return self


def _call(function: Callable[..., Any], element: Any) -> Any:
    return function(*element) if isinstance(element, tuple) else function(element)
