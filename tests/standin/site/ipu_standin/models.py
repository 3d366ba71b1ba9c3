"""Keras models made in an IPU strategy's scope: the SDK's methods on them, and fit() and predict() as on IPUs."""

from __future__ import annotations

import inspect
import weakref
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from ipu_standin.feeds import Feed
from ipu_standin.sdk import Sdk
from ipu_standin.strategies import IpuStrategyBase

_KERAS = {name: getattr(tf.keras.Model, name) for name in ("compile", "fit", "evaluate", "predict")}
_OLD_OPTIMIZERS = getattr(tf.keras.optimizers, "legacy", tf.keras.optimizers)


class Options:
    """What has been set on one model."""

    def __init__(self) -> None:
        self.accumulation, self.accumulation_method = 1, "SUM"
        self.metric_method = "NONE"
        self.steps_per_execution = 1
        self.has_first_weights = False
        self.train_step: Any = None
        self.predict_step: Any = None


_options: weakref.WeakKeyDictionary[Any, Options] = weakref.WeakKeyDictionary()


def install(sdk: Sdk) -> None:
    for name, act in (("compile", _compile), ("fit", _fit), ("evaluate", None), ("predict", _predict)):
        setattr(tf.keras.Model, name, _patched(sdk, name, act))
    for name, signature in sdk.table.model_methods.items():
        setattr(tf.keras.Model, name, SdkMethod(sdk, name, signature))


def uninstall() -> None:
    for name, original in _KERAS.items():
        setattr(tf.keras.Model, name, original)
    for name, value in list(vars(tf.keras.Model).items()):
        if isinstance(value, SdkMethod):
            delattr(tf.keras.Model, name)


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
        act = {
            "set_gradient_accumulation_options": _set_accumulation,
            "set_replication_options": _set_replication,
        }.get(self.name)
        bound = (lambda *args, **kwargs: act(self.sdk, options, *args, **kwargs)) if act else None
        return self.sdk.calls.checked(f"Model.{self.name}", self.signature, bound)


def _set_accumulation(sdk: Sdk, options: Options, steps: Any, method: Any, use_v2: bool, **more: Any) -> None:
    if more:
        raise NotImplementedError(f"options of the accumulating optimizer: {sorted(more)}")
    if type(steps) is not int or steps < 1:
        raise ValueError(f"gradient_accumulation_steps_per_replica is {steps!r}, expected a positive whole number")
    options.accumulation = steps
    enum_name = "tensorflow.python.ipu.gradient_accumulation.GradientAccumulationReductionMethod"
    options.accumulation_method = _member(method, sdk.enums[enum_name])


def _set_replication(sdk: Sdk, options: Options, method: Any) -> None:
    options.metric_method = _member(method, sdk.enums["keras.ipu.ReplicatedMetricReductionMethod"])


def _member(value: Any, members: Any) -> str:
    """The name of an enum's member, given as such or as its name in any case."""
    name = value.upper() if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(value, (str, members)) or name not in members.__members__:
        raise ValueError(f"{value!r} is none of {list(members.__members__)}")
    return str(name)


def _patched(sdk: Sdk, name: str, act: Any) -> Callable[..., Any]:
    original = _KERAS[name]

    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_ours(model):
            return original(model, *args, **kwargs)
        bound = inspect.signature(original).bind(model, *args, **kwargs)
        given = {key: value for key, value in bound.arguments.items() if key != "self"}
        sdk.calls.record(f"Model.{name}", {"model": model.name, **given})
        if act is None:
            raise NotImplementedError(f"the stand-in does not act out {name}()")
        return act(sdk, model, _options.setdefault(model, Options()), **given)

    return call


def _compile(sdk: Sdk, model: Any, options: Options, **given: Any) -> None:
    optimizer, steps = given.get("optimizer", "rmsprop"), given.get("steps_per_execution")
    if not isinstance(optimizer, (str, _OLD_OPTIMIZERS.Optimizer)):
        raise ValueError(f"{type(optimizer).__module__} is no optimizer of the generation that the IPU has")
    if steps is not None and (type(steps) is not int or steps < 1):
        raise ValueError(f"steps_per_execution is {steps!r}, expected a positive whole number")
    options.steps_per_execution = steps or 1
    options.train_step = options.predict_step = None
    _KERAS["compile"](model, **given)


def _replicas(sdk: Sdk, model: Any) -> int:
    """Local replicas, as IPU Keras finds them for a model without pipeline stages: one for every IPU."""
    if sdk.ipus is None:
        raise RuntimeError("no IPU is configured: configure_ipu_system() comes first")
    for name in ("make_train_function", "make_test_function", "make_predict_function"):
        if getattr(type(model), name) is not getattr(tf.keras.Model, name):
            raise RuntimeError(f"{name} is overridden, which does not work in an IPU strategy")
    return sdk.ipus


def _fit(
    sdk: Sdk,
    model: Any,
    options: Options,
    x: Any,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    steps_per_epoch: Any = None,
) -> Any:
    replicas, strategy = _replicas(sdk, model), model.distribute_strategy
    with strategy.scope():
        feed = Feed(x, model.inputs, replicas, steps_per_epoch, options.steps_per_execution, epochs)
        if feed.steps_per_execution % options.accumulation:
            raise RuntimeError(
                f"steps_per_execution {feed.steps_per_execution} is not divisible by"
                f" gradient_accumulation_steps_per_replica {options.accumulation}"
            )
        _share_first_weights(sdk, model, options)
        watchers = tf.keras.callbacks.CallbackList(
            callbacks, add_history=True, model=model, verbose=verbose, epochs=epochs, steps=feed.steps
        )
        watchers.on_train_begin()
        logs: Dict[str, Any] = {}
        for epoch in range(epochs):
            watchers.on_epoch_begin(epoch)
            metrics: List[Any] = [None] * replicas
            for first in feed.executions(epoch):
                watchers.on_train_batch_begin(first)
                for _ in range(feed.steps_per_execution // options.accumulation):
                    _update(sdk, model, options, feed, metrics)
                logs = _logs(model, options, metrics)
                watchers.on_train_batch_end(first + feed.steps_per_execution - 1, logs)
            watchers.on_epoch_end(epoch, dict(logs))
        watchers.on_train_end(logs)
    return model.history


def _share_first_weights(sdk: Sdk, model: Any, options: Options) -> None:
    """The strategy hands the initial values of instance 0 to all."""
    if not options.has_first_weights:
        for weight in model.weights:
            value = weight.numpy()
            weight.assign(sdk.sum_over_instances(value if sdk.instance == 0 else np.zeros_like(value)))
        options.has_first_weights = True


def _update(sdk: Sdk, model: Any, options: Options, feed: Feed, metrics: List[Any]) -> None:
    """One weight update: the replicas take turns within a step, as an infeed serves them."""
    strategy, weights = model.distribute_strategy, model.trainable_variables
    accumulated: List[Any] = [None] * feed.replicas
    for step in range(options.accumulation):
        for replica in range(feed.replicas):
            gradients = _step(model, options, feed.next(), metrics, replica)
            accumulated[replica] = _accumulate(accumulated[replica], gradients, step, options)
    summed = [sum(parts) for parts in zip(*accumulated)]
    # Keras divides each replica's loss by the replicas in sync, and the optimizer sums gradients over all of them.
    reduced = [sdk.sum_over_instances(np.asarray(part)) / strategy.replicas_in_sync for part in summed]
    strategy.run(lambda: model.optimizer.apply_gradients(zip(map(tf.constant, reduced), weights)))


def _step(model: Any, options: Options, data: Tuple[Any, ...], metrics: List[Any], replica: int) -> List[Any]:
    """Gradients of one micro-batch; every replica has metrics of its own."""
    if options.train_step is None:

        @tf.function
        def train_step(inputs: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=True)
                loss = model.compiled_loss(targets, outputs, regularization_losses=model.losses)
            model.compiled_metrics.update_state(targets, outputs)
            return tape.gradient(loss, model.trainable_variables)

        options.train_step = train_step
    _load(model, metrics[replica])
    gradients = model.distribute_strategy.run(options.train_step, args=data)
    metrics[replica] = [variable.numpy() for metric in model.metrics for variable in metric.variables]
    return [gradient.numpy() for gradient in gradients]


def _accumulate(total: Any, gradients: List[Any], step: int, options: Options) -> Any:
    if options.accumulation_method == "RUNNING_MEAN":
        old, new = np.float32(step / (step + 1)), np.float32(1 / (step + 1))
    else:
        old, new = np.float32(1), np.float32(1 / options.accumulation if options.accumulation_method == "MEAN" else 1)
    if total is None:
        return [gradient * new for gradient in gradients]
    return [part * old + gradient * new for part, gradient in zip(total, gradients)]


def _load(model: Any, state: Any) -> None:
    if state is None:
        model.reset_metrics()
    else:
        variables = [variable for metric in model.metrics for variable in metric.variables]
        for variable, value in zip(variables, state):
            variable.assign(value)


def _logs(model: Any, options: Options, metrics: List[Any]) -> Dict[str, Any]:
    """The metrics of the last replica, unless set_replication_options() asked for another reduction."""
    by_replica = []
    for state in metrics:
        _load(model, state)
        by_replica.append({metric.name: metric.result().numpy() for metric in model.metrics})
    reduce: Dict[str, Callable[[List[Any]], Any]] = {
        "NONE": lambda values: values[-1],
        "LIST": list,
        "SUM": sum,
        "MEAN": np.mean,
    }
    return {name: reduce[options.metric_method]([logs[name] for logs in by_replica]) for name in by_replica[0]}


def _predict(sdk: Sdk, model: Any, options: Options, x: Any, verbose: Any = 0, steps: Any = None) -> Any:
    replicas = _replicas(sdk, model)
    with model.distribute_strategy.scope():
        feed = Feed(x, model.inputs, replicas, steps, options.steps_per_execution, 1)
        if options.predict_step is None:
            options.predict_step = tf.function(lambda inputs: model(inputs, training=False))
        rows = []
        for _ in feed.executions(0):
            for _ in range(feed.steps_per_execution * replicas):
                (inputs,) = feed.next()
                rows.append(model.distribute_strategy.run(options.predict_step, args=(inputs,)).numpy())
    return np.concatenate(rows)
