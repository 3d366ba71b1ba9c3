"""As much of TensorFlow as a worker needs for a training of one small linear model, in NumPy, at once.

With the directory above this one on PYTHONPATH, `python -m ipulaunch.workers` starts in a fraction of a second.

Real, and the product's own: the entry point and all that it does; records, heartbeat, requests to stop; MPI and the
sums over it; the order of samples, the position at which a resumed training takes it up, and the reader of records;
the weight update of all replicas (ReplicatedModel), the optimizer's product part, Progress, checkpoints and their
state, validation, history and summary. All of that runs as it is in the product.

Not real: graphs, tensors and threads of TensorFlow's. A stream is a chain of generators that reads nothing ahead; what
it calls runs in the main thread. An exception in such a call becomes an error of TensorFlow's with a text like
TensorFlow's, as the product has to find the cause in it. The model is one dense layer (see `light_build`), its gradient
is found by a difference (see `light_stages`). Nothing is written for TensorBoard.

What is not listed here is missing, so that whatever the product newly needs fails at once instead of being skipped;
types and shapes are checked where TensorFlow would check them. What TensorFlow itself does to a run (its threads in a
hang, its memory, its exit) is only seen with the real worker.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Sequence

import numpy as np

__version__ = "2.15.0-light"

bool = np.bool_
float32, float64 = np.float32, np.float64
int16, int32, int64 = np.int16, np.int32, np.int64


class InPlaceOf(importlib.abc.MetaPathFinder):
    """Finds our module where the product's own needs layers and gradients of TensorFlow's."""

    modules = {"ipulaunch.workers.models.build": "light_build", "ipulaunch.workers.backends.cpu.stages": "light_stages"}

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        ours = self.modules.get(name)
        return ours and importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{ours}.py"))


sys.meta_path.insert(0, InPlaceOf())


class OpError(Exception):
    """What TensorFlow raises."""


class InvalidArgumentError(OpError):
    """A ValueError or TypeError of a function that was called."""


class ResourceExhaustedError(OpError):
    """A MemoryError."""


class UnknownError(OpError):
    """Any other one."""


errors = SimpleNamespace(OpError=OpError, InvalidArgumentError=InvalidArgumentError)


class Tensor(np.ndarray):
    """An array of which more can be said."""

    def set_shape(self, shape: Sequence[Optional[int]]) -> None:
        fits = len(shape) == self.ndim and all(want in (None, have) for want, have in zip(shape, self.shape))
        if not fits:
            raise ValueError(f"a shape of {self.shape} is not {tuple(shape)}")


class Shape(tuple):
    """The shape of a variable."""

    def num_elements(self) -> int:
        return int(np.prod(self))


class Variable:
    """An array that changes; it keeps its type and shape."""

    def __init__(self, value: Any, trainable: Any = True, dtype: Any = None, name: str = "variable") -> None:
        self.value = np.array(value, dtype)
        self.name = f"{name}:0"

    @property
    def shape(self) -> Shape:
        return Shape(self.value.shape)

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    def numpy(self) -> np.ndarray:
        return self.value.copy()

    read_value = numpy

    def assign(self, value: Any, read_value: Any = True) -> None:
        new = np.asarray(value)
        if new.shape != self.value.shape or new.dtype != self.value.dtype:
            raise ValueError(f"{self.name} is {self.value.dtype} {self.shape}, and not {new.dtype} {new.shape}")
        self.value = new.copy()

    def assign_add(self, value: Any, read_value: Any = True) -> None:
        self.assign(self.value + value)

    def assign_sub(self, value: Any, read_value: Any = True) -> None:
        self.assign(self.value - value)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.value.astype(dtype or self.value.dtype)

    def __add__(self, other: Any) -> Any:
        return self.value + other

    def __sub__(self, other: Any) -> Any:
        return self.value - other

    def __mul__(self, other: Any) -> Any:
        return self.value * other


class TensorArray:
    """Places that are written one by one."""

    def __init__(self, dtype: Any, size: int, clear_after_read: Any, element_shape: List[int]) -> None:
        self.dtype, self.element_shape = np.dtype(dtype), tuple(element_shape)
        self.places: List[Any] = [None] * size

    def write(self, place: int, value: Any) -> TensorArray:
        assert (value.dtype, value.shape) == (self.dtype, self.element_shape)
        self.places[place] = value
        return self

    def read(self, place: int) -> Any:
        return self.places[place]


def numpy_function(function: Callable[..., Any], arguments: Sequence[Any], kinds: Any) -> Any:
    """What a function makes of arrays, of these types; what it raises comes out as TensorFlow would put it."""
    try:
        found = function(*map(np.asarray, arguments))
    except Exception as error:  # noqa: BLE001 - as TensorFlow
        raise _as_tensorflow(error) from None
    wanted = [kinds] if not isinstance(kinds, list) else kinds
    values = [found] if not isinstance(kinds, list) else list(found)
    for value, kind in zip(values, wanted):
        if value.dtype != kind:
            raise InvalidArgumentError(
                f"{value.dtype} where {np.dtype(kind)} was announced\n\t [[{{{{node PyFunc}}}}]]"
            )
    tensors = [value.view(Tensor) for value in values]
    return tensors if isinstance(kinds, list) else tensors[0]


def _as_tensorflow(error: Exception) -> OpError:
    kind: Any = UnknownError
    if isinstance(error, MemoryError):
        kind = ResourceExhaustedError
    elif isinstance(error, (TypeError, ValueError)):
        kind = InvalidArgumentError
    said = f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_tb(error.__traceback__))
    return kind(f"{kind.__name__}: {said}\nTraceback (most recent call last):\n\n{trace}\n\n\t [[{{{{node PyFunc}}}}]]")


def function(called: Callable[..., Any], autograph: Any = True) -> Callable[..., Any]:
    """There are no graphs: it is called each time."""
    return called


def cast(value: Any, kind: Any) -> Any:
    return np.asarray(value).astype(kind)


def split(value: Any, sizes: Sequence[int]) -> List[Any]:
    assert sum(sizes) == len(value)
    return np.split(value, np.cumsum(sizes)[:-1])


def reduce_mean(value: Any, axis: Any = None, keepdims: Any = False) -> Any:
    return np.asarray(value).mean(axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)


def zeros(shape: Any, kind: Any = float32) -> Any:
    return np.zeros(tuple(shape), kind)


def range(*limits: Any, dtype: Any = int32) -> Any:
    return np.arange(*limits, dtype=dtype)


def where(condition: Any, one: Any, other: Any) -> Any:
    return np.where(condition, one, other)


# Names are what they are, and one thing is done after the other anyway.
name_scope = control_dependencies = contextlib.nullcontext


timestamp, identity = time.time, np.asarray
nest = SimpleNamespace(flatten=lambda element: [element], map_structure=lambda called, element: element)
abs, concat, reduce_sum, reshape, stack = np.abs, np.concatenate, np.sum, np.reshape, np.stack
constant, as_dtype, ones_like = np.array, np.dtype, np.ones_like
bitwise = SimpleNamespace(right_shift=np.right_shift)
math = SimpleNamespace(
    log1p=np.log1p, squared_difference=lambda one, other: np.square(np.asarray(one) - np.asarray(other))
)
random = SimpleNamespace(set_seed=lambda seed: None)
autograph = SimpleNamespace(
    experimental=SimpleNamespace(do_not_convert=lambda called: called, set_loop_options=lambda **options: None)
)


class _Threads:
    """How many threads were asked for."""

    def __init__(self) -> None:
        self.intra = self.inter = 0

    def set_intra_op_parallelism_threads(self, count: int) -> None:
        self.intra = count

    def set_inter_op_parallelism_threads(self, count: int) -> None:
        self.inter = count

    def get_intra_op_parallelism_threads(self) -> int:
        return self.intra

    def get_inter_op_parallelism_threads(self) -> int:
        return self.inter


config = SimpleNamespace(threading=_Threads(), optimizer=SimpleNamespace(set_experimental_options=lambda options: None))


class _Writer:
    """A writer for TensorBoard that writes nothing."""

    as_default = staticmethod(contextlib.nullcontext)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class _SummaryMetadata(SimpleNamespace):
    PluginData = SimpleNamespace


summary = SimpleNamespace(
    create_file_writer=lambda directory: _Writer(), write=lambda name, tensor, step, metadata: None
)
# Estimators are imported with the rest, and not used.
compat = SimpleNamespace(
    v1=SimpleNamespace(SummaryMetadata=_SummaryMetadata, train=SimpleNamespace(SessionRunHook=object))
)

from tensorflow import light_data as data  # noqa: E402 - they need the names above
from tensorflow import light_keras as keras  # noqa: E402

__all__ = ["data", "keras"]
