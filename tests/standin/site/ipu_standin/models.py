"""Keras models made in an IPU strategy's scope: the SDK's methods on them, and compile(), fit() and predict()."""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import Any, Callable

import tensorflow as tf

from ipu_standin import numbers
from ipu_standin.feeds import STOCK_ITER
from ipu_standin.options import Options, setters
from ipu_standin.running import evaluate, fit, predict
from ipu_standin.sdk import Sdk
from ipu_standin.serving import export_keras
from ipu_standin.strategies import IpuStrategyBase

_KERAS = {name: getattr(tf.keras.Model, name) for name in ("compile", "fit", "evaluate", "predict")}
_OLD_OPTIMIZERS = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)

_options: weakref.WeakKeyDictionary[Any, Options] = weakref.WeakKeyDictionary()


def install(sdk: Sdk) -> None:
    numbers.install()
    tf.data.Dataset.__iter__ = _iterate
    for name, act in (("compile", _compile), ("fit", fit), ("evaluate", evaluate), ("predict", predict)):
        setattr(tf.keras.Model, name, _patched(sdk, name, act))
    for name, signature in sdk.table.model_methods.items():
        setattr(tf.keras.Model, name, SdkMethod(sdk, name, signature))


def uninstall() -> None:
    numbers.uninstall()
    tf.data.Dataset.__iter__ = STOCK_ITER
    for name, original in _KERAS.items():
        setattr(tf.keras.Model, name, original)
    for name, value in list(vars(tf.keras.Model).items()):
        if isinstance(value, SdkMethod):
            delattr(tf.keras.Model, name)


def _iterate(dataset: Any) -> Any:
    """In the scope a dataset is iterated by a feed of the IPU, which the host cannot read."""
    if isinstance(tf.distribute.get_strategy(), IpuStrategyBase) and tf.executing_eagerly():
        raise RuntimeError("the host iterates a dataset in the scope of an IPU strategy")
    return STOCK_ITER(dataset)


def _is_ours(model: Any) -> bool:
    strategy = model.distribute_strategy
    return isinstance(strategy, IpuStrategyBase) and strategy.has_extensions


class SdkMethod:
    """A method that is only there on models made inside the scope."""

    def __init__(self, sdk: Sdk, name: str, signature: inspect.Signature) -> None:
        self.sdk, self.name, self.signature = sdk, name, signature

    def __get__(self, model: Any, owner: Any = None) -> Any:
        if model is None or not _is_ours(model):
            raise AttributeError(f"{self.name}: only models made in the scope of an IPU strategy have it")
        options = _options.setdefault(model, Options())
        act = setters(self.sdk, model, options).get(self.name)
        if self.name == "export_for_ipu_serving":
            act = functools.partial(export_keras, self.sdk, model, options)
        return self.sdk.calls.checked(f"Model.{self.name}", self.signature, act)


def _patched(sdk: Sdk, name: str, act: Any) -> Callable[..., Any]:
    original = _KERAS[name]

    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_ours(model):
            return original(model, *args, **kwargs)
        bound = inspect.signature(original).bind(model, *args, **kwargs)
        given = {key: value for key, value in bound.arguments.items() if key != "self"}
        sdk.calls.record(f"Model.{name}", {"model": model.name, **given.pop("kwargs", {}), **given})
        return act(sdk, model, _options.setdefault(model, Options()), **given)

    return call


def _compile(sdk: Sdk, model: Any, options: Options, **given: Any) -> None:
    optimizer, steps = given.get("optimizer", "rmsprop"), given.get("steps_per_execution")
    if not isinstance(optimizer, (str, _OLD_OPTIMIZERS.Optimizer)):
        raise ValueError(f"{type(optimizer).__module__} is no optimizer of the generation that the IPU has")
    if steps is not None and (type(steps) is not int or steps < 1):
        raise ValueError(f"steps_per_execution is {steps!r}, expected a positive whole number")
    options.steps_per_execution, options.is_compiled = steps or 1, True
    options.train_step = options.test_step = options.predict_step = None
    _KERAS["compile"](model, **given)
    if optimizer is not getattr(model, "optimizer", optimizer) and not isinstance(optimizer, str):
        raise RuntimeError("Keras has put an optimizer of its own around ours: the model is one of mixed precision")
