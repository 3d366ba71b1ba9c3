"""The loop of Keras, and its gradient descent with momentum."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import numpy as np

import tensorflow as tf


class Callback:
    """Hears of nothing that it does not ask for."""

    def on_train_begin(self, logs: Any = None) -> None:
        pass

    def on_train_end(self, logs: Any = None) -> None:
        pass

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        pass

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        pass

    def on_train_batch_begin(self, step: int, logs: Any = None) -> None:
        pass

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        pass


class Model:
    """What calls the train function and then whoever wants to hear of it."""

    def __init__(self, name: str = "", dtype: Any = None) -> None:
        self.name = name

    def compile(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def make_train_function(self) -> Any:
        raise NotImplementedError

    def fit(self, stream: Any, epochs: int, steps_per_epoch: int, callbacks: List[Any], verbose: int) -> None:
        batches, update = iter(stream), self.make_train_function()
        _tell(callbacks, "on_train_begin")
        for epoch in range(epochs):
            _tell(callbacks, "on_epoch_begin", epoch)
            for step in range(steps_per_epoch):
                _tell(callbacks, "on_train_batch_begin", step)
                _tell(callbacks, "on_train_batch_end", step, update(batches))
            _tell(callbacks, "on_epoch_end", epoch)
        _tell(callbacks, "on_train_end")


def _tell(callbacks: Sequence[Any], what: str, *arguments: Any) -> None:
    for callback in callbacks:
        getattr(callback, what)(*arguments)


class Optimizer:
    """State that is made with the first update, and a rule for one variable."""

    def __init__(self, learning_rate: Any, name: str = "") -> None:
        self._name = name or type(self).__name__
        self._hyper: Dict[str, Any] = {"learning_rate": learning_rate}
        self.iterations = tf.Variable(0, dtype=tf.int64, name="iter")
        self.slots: Dict[int, tf.Variable] = {}

    @property
    def learning_rate(self) -> tf.Variable:
        return tf.Variable(np.float32(self._hyper["learning_rate"]), name="learning_rate")

    @property
    def weights(self) -> List[tf.Variable]:
        return [self.iterations, *self.slots.values()]

    def _get_hyper(self, name: str, dtype: Any = None) -> Any:
        return self._hyper[name] if dtype is None else np.dtype(dtype).type(self._hyper[name])

    def _create_all_weights(self, variables: Sequence[tf.Variable]) -> None:
        raise NotImplementedError

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        raise NotImplementedError

    def apply_gradients(self, pairs: Any) -> None:
        pairs = list(pairs)
        self._create_all_weights([variable for _, variable in pairs])
        for gradient, variable in pairs:
            self._resource_apply_dense(gradient, variable)
        self.iterations.assign_add(np.int64(1))


class SGD(Optimizer):
    """Gradient descent with momentum, which remembers in every weight how it moved."""

    def __init__(self, learning_rate: Any, momentum: float = 0.0, name: str = "SGD") -> None:
        super().__init__(learning_rate, name)
        self._hyper["momentum"] = momentum

    def _create_all_weights(self, variables: Sequence[tf.Variable]) -> None:
        for variable in variables:
            if id(variable) not in self.slots:
                self.slots[id(variable)] = tf.Variable(np.zeros_like(variable.value), name="momentum")

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        velocity = self.slots[id(var)]
        kept = self._get_hyper("momentum", var.dtype) * velocity.value
        velocity.assign(kept - self._decayed_lr(var.dtype) * grad)
        var.assign_add(velocity.value)

    def _decayed_lr(self, dtype: Any) -> Any:
        raise NotImplementedError  # the product has its own


class Adadelta(Optimizer):
    """A name alone."""


class Adam(Optimizer):
    """A name alone."""


class RMSprop(Optimizer):
    """A name alone."""


class _Policy:
    """The bits of layers, which a light model does not ask for."""

    name = "float32"

    def get(self) -> str:
        return self.name

    def set(self, name: str) -> None:
        assert name == "float32", "a light model has 32 bits"


_policy = _Policy()
callbacks = SimpleNamespace(Callback=Callback)
layers = SimpleNamespace(Layer=object)
mixed_precision = SimpleNamespace(global_policy=_policy.get, set_global_policy=_policy.set)
optimizers = SimpleNamespace(
    legacy=SimpleNamespace(Optimizer=Optimizer, SGD=SGD, Adadelta=Adadelta, Adam=Adam, RMSprop=RMSprop),
    schedules=SimpleNamespace(LearningRateSchedule=object),
)
