"""fit() and predict() as on IPUs: executions of many steps, replicas in turn, one update for all of them."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipu_standin.feeds import Feed
from ipu_standin.loss_scaling import is_als
from ipu_standin.options import Options
from ipu_standin.pipelining import check_scaled_gradients, check_sharding
from ipu_standin.sdk import Sdk
from ipu_standin.strategies import component


def replicas(sdk: Sdk, options: Options) -> int:
    """Local replicas, as IPU Keras finds them: the IPUs of this instance by those that the model is on."""
    if sdk.ipus is None:
        raise RuntimeError("no IPU is configured: configure_ipu_system() comes first")
    if options.ipus_per_replica > sdk.ipus:
        raise ValueError(f"{sdk.ipus} IPUs are attached, the model needs a multiple of {options.ipus_per_replica}")
    found = sdk.ipus // options.ipus_per_replica
    if sdk.is_under_poprun and found != sdk.local_replicas:
        raise RuntimeError(f"Keras finds {found} replicas on {sdk.ipus} IPUs, poprun was given {sdk.local_replicas}")
    return found


def check_model(model: Any, options: Options, kind: str) -> None:
    """What the SDK looks at before it makes the function of a device call."""
    overridden = [f"make_{kind}_function", *([f"{kind}_step"] if kind == "train" or options.stages else [])]
    for name in overridden:
        if getattr(type(model), name) is not getattr(tf.keras.Model, name):
            raise RuntimeError(f"{name} is overridden, which does not work in an IPU strategy")
    caller = next(made_by for made_by in type(model).__mro__ if "call" in vars(made_by))
    if options.stages and caller.__name__ != "Functional":
        raise RuntimeError(f"call is overridden, which does not work for the pipeline {model.name}")
    optimizer = getattr(model, "optimizer", None)
    if (options.stages or (kind == "train" and options.steps_per_update > 1)) and optimizer is not None:
        first, second, *more = type(optimizer).__mro__
        if more and first.minimize is not getattr(second, "minimize", first.minimize):
            raise ValueError(f"{first.__name__} overrides minimize(), which neither accumulation nor pipelines call")


def check_statistics(model: Any, options: Options) -> None:
    """The SDK warns that a pipeline gets the moving statistics of Keras's batch norms wrong: here it is a mistake."""
    for layer in model.layers if options.stages else ():
        if isinstance(layer, tf.keras.layers.BatchNormalization) and 0 < layer.momentum < 1:
            raise RuntimeError(f"the moving statistics of {layer.name} are wrong after a training in a pipeline")


def fit(
    sdk: Sdk,
    model: Any,
    options: Options,
    x: Any,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    steps_per_epoch: Any = None,
) -> Any:
    if not options.is_compiled:
        raise RuntimeError("fit() before compile()")
    if model.run_eagerly:
        raise RuntimeError("models cannot run eagerly in an IPU strategy")
    with model.distribute_strategy.scope():
        feed = Feed(x, model.inputs)
        feed.divide(replicas(sdk, options), steps_per_epoch, options.steps_per_execution, epochs)
        options.check_accumulation(feed.steps_per_execution)
        watchers = tf.keras.callbacks.CallbackList(
            callbacks, add_history=True, model=model, verbose=verbose, epochs=epochs, steps=feed.steps
        )
        watchers.on_train_begin()
        logs: Dict[str, Any] = {}
        options.scales_each = _scales_each(sdk, model, options)
        for epoch in feed.epochs(epochs):
            check_model(model, options, "train")
            options.check_run(sdk, feed.steps_per_execution, is_training=True)
            check_statistics(model, options)
            if not options.stages and options.steps_per_update > 1:
                check_sharding(options.accumulator)
            _check_rounding(sdk, model, options, feed.replicas)
            watchers.on_epoch_begin(epoch)
            scaling = model.optimizer.state() if options.scales_each else []
            own = [Own(model, scaling) for _ in range(feed.replicas)]
            for first in range(0, feed.steps, feed.steps_per_execution):
                watchers.on_train_batch_begin(first)
                for _ in range(feed.steps_per_execution // options.steps_per_update):
                    _update(sdk, model, options, feed, own)
                own[0].show_statistics()
                logs = _logs(sdk, model, options, own)
                watchers.on_train_batch_end(first + feed.steps_per_execution - 1, logs)
            watchers.on_epoch_end(epoch, dict(logs))
        watchers.on_train_end(logs)
    return model.history


def _scales_each(sdk: Sdk, model: Any, options: Options) -> bool:
    """Whether a loss scale moves with micro-batches; SDK 3.0 moves it with updates wherever it is."""
    is_accumulated = not options.stages and options.steps_per_update > 1
    return is_als(model.optimizer) and is_accumulated and sdk.table.sdk >= "3.1"


def _check_rounding(sdk: Sdk, model: Any, options: Options, local_replicas: int) -> None:
    """Replicas that round their weights each in its own way would drift apart; the SDK says nothing."""
    is_half = any(weight.dtype == tf.float16 for weight in model.trainable_variables)
    if sdk.instances * local_replicas == 1 or not is_half or sdk.rounding != "ON":
        return
    if not sdk.is_prng_stable:
        raise RuntimeError("stochastic rounding without enable_prng_stability: the weights of replicas drift apart")
    if options.scales_each:
        raise RuntimeError("each replica rounds the sum that it accumulates: the weights of replicas drift apart")


class Own:
    """What each replica has of its own: metrics, and statistics such as those of batch norms or of a loss scale."""

    def __init__(self, model: Any, scaling: Sequence[Any] = ()) -> None:
        self.model, self.scaling, self.metrics = model, scaling, None  # type: Any, Any, Any
        self.statistics = [variable.numpy() for variable in self._statistics()]

    def load(self) -> None:
        for variable, value in zip(self._statistics(), self.statistics):
            variable.assign(value)
        self.load_metrics()

    def load_metrics(self) -> None:
        if self.metrics is None:
            self.model.reset_metrics()
        else:
            for variable, value in zip(self._metric_variables(), self.metrics):
                variable.assign(value)

    def keep(self) -> None:
        self.statistics = [variable.numpy() for variable in self._statistics()]
        self.metrics = [variable.numpy() for variable in self._metric_variables()]

    def show_statistics(self) -> None:
        """The host sees those of the instance's first replica."""
        for variable, value in zip(self._statistics(), self.statistics):
            variable.assign(value)

    def _statistics(self) -> List[Any]:
        return [component(variable) for variable in (*self.model.non_trainable_variables, *self.scaling)]

    def _metric_variables(self) -> List[Any]:
        return [component(variable) for metric in self.model.metrics for variable in metric.variables]


def _update(sdk: Sdk, model: Any, options: Options, feed: Feed, own: List[Own]) -> None:
    """One weight update: the replicas take turns within a step, as an infeed serves them."""
    optimizer, weights = model.optimizer, model.trainable_variables
    accumulated: List[Any] = [None] * feed.replicas
    for step in range(options.steps_per_update):
        for replica in range(feed.replicas):
            gradients = _step(sdk, model, options, feed.next(), own[replica])
            if options.scales_each:  # each replica by itself
                optimizer._do_lsf_update()
                own[replica].keep()
            accumulated[replica] = _accumulate(accumulated[replica], gradients, step, options)
    reduced = [sdk.sum_over_instances(sum(parts)) for parts in zip(*accumulated)]
    mine = [tf.constant(part) for part in accumulated[0]]
    # One replica applies its own gradients, and whoever reduces them finds the sum over all.
    strategy = model.distribute_strategy
    strategy.extended.sums = {id(part): tf.constant(total) for part, total in zip(mine, reduced)}
    apply = functools.partial(_apply_accumulated, optimizer) if options.scales_each else optimizer.apply_gradients
    strategy.extended.call_for_each_replica(lambda: apply(list(zip(mine, weights))))
    strategy.extended.sums = {}


def _apply_accumulated(optimizer: Any, pairs: Any) -> None:
    """What accumulates around ALSOptimizer reduces, applies, and counts the updates by itself."""
    before = optimizer.iterations.numpy()
    optimizer.apply_accumulated(pairs)
    optimizer.iterations.assign(before)


def _step(sdk: Sdk, model: Any, options: Options, data: Tuple[Any, ...], own: Own) -> List[Any]:
    """Gradients of one micro-batch."""
    if options.train_step is None:

        @tf.function
        def train_step(inputs: Any, *rest: Any) -> Any:
            # As Keras 2.6 does before anything else.
            rest = tuple(value[:, tf.newaxis] if value.shape.rank == 1 else value for value in rest)
            targets, *weights = rest
            outputs = model(inputs, training=True)
            # It divides the loss by the replicas in sync; their gradients are then summed.
            loss = model.compiled_loss(targets, outputs, *weights, regularization_losses=model.losses)
            model.compiled_metrics.update_state(targets, outputs, *weights)
            gradients = model.optimizer.get_gradients(loss, model.trainable_variables)
            if options.accumulation_method != "SUM" and (options.stages or options.steps_per_update > 1):
                check_scaled_gradients(gradients)
            return model.optimizer.unscaled(gradients) if options.scales_each else gradients

        options.train_step = train_step
    own.load()
    gradients = model.distribute_strategy.run(options.train_step, args=data)
    own.keep()
    return [gradient.numpy() for gradient in gradients]


def _accumulate(total: Any, gradients: List[Any], step: int, options: Options) -> Any:
    if options.accumulation_method == "RUNNING_MEAN":
        old, new = np.float32(step / (step + 1)), np.float32(1 / (step + 1))
    else:
        steps = options.steps_per_update if options.accumulation_method == "MEAN" else 1
        old, new = np.float32(1), np.float32(1 / steps)
    if total is None:
        return [gradient * new for gradient in gradients]
    return [part * old + gradient * new for part, gradient in zip(total, gradients)]


def _logs(sdk: Sdk, model: Any, options: Options, own: List[Own]) -> Dict[str, Any]:
    """What fit() tells: with PopDist the metrics over all replicas of all instances, otherwise those of one replica."""
    if sdk.makes_data_up:
        return dict.fromkeys((metric.name for metric in model.metrics), 0.0)
    if model.distribute_strategy.reduces_metrics:
        # Reading a metric on the device sums what it counts over all replicas, whatever set_replication_options() says.
        everyone = Own(model)
        everyone.metrics = [sdk.sum_over_instances(sum(parts)) for parts in zip(*(replica.metrics for replica in own))]
        everyone.load_metrics()
        return {metric.name: model.distribute_strategy.run(metric.result).numpy() for metric in model.metrics}
    by_replica: List[Dict[str, Any]] = []
    averaged = set()
    for replica in own:
        replica.load_metrics()
        by_replica.append({})
        for metric in model.metrics:
            sdk.is_averaged = False
            by_replica[-1][metric.name] = metric.result().numpy()
            averaged |= {metric.name} if sdk.is_averaged else set()
    reduce: Dict[str, Callable[[List[Any]], Any]] = {
        "NONE": lambda values: values[-1],
        "LIST": list,
        "SUM": sum,
        "MEAN": np.mean,
    }
    method = "NONE" if options.stages else options.metric_method  # a pipeline's are not reduced
    return {
        name: reduce["MEAN" if name in averaged else method]([logs[name] for logs in by_replica])
        for name in by_replica[0]
    }


def evaluate(
    sdk: Sdk,
    model: Any,
    options: Options,
    x: Any,
    verbose: Any = "auto",
    callbacks: Any = None,
    steps: Any = None,
    return_dict: bool = False,
) -> Any:
    """The measures after the last step, in the order of their names."""
    if not options.is_compiled:
        raise RuntimeError("evaluate() before compile()")
    if model.run_eagerly:
        raise RuntimeError("models cannot run eagerly in an IPU strategy")
    with model.distribute_strategy.scope():
        feed = Feed(x, model.inputs)
        feed.divide(replicas(sdk, options), steps, options.steps_per_execution, 1)
        watchers = tf.keras.callbacks.CallbackList(callbacks, model=model, verbose=verbose, epochs=1, steps=feed.steps)
        watchers.on_test_begin()
        for _ in feed.epochs(1):
            check_model(model, options, "test")
            options.check_run(sdk, feed.steps_per_execution, is_training=False)
            own = [Own(model) for _ in range(feed.replicas)]
            for first in range(0, feed.steps, feed.steps_per_execution):
                watchers.on_test_batch_begin(first)
                for _ in range(feed.steps_per_execution):
                    for replica in own:
                        replica.load_metrics()
                        model.distribute_strategy.run(_tested(model, options), args=feed.next())
                        replica.keep()
                logs = _logs(sdk, model, options, own)
                watchers.on_test_batch_end(first + feed.steps_per_execution - 1, logs)
        watchers.on_test_end(logs)
    found = [float(logs[name]) for name in model.metrics_names]
    return logs if return_dict else found if len(found) > 1 else found[0]


def _tested(model: Any, options: Options) -> Any:
    if options.test_step is None:
        options.test_step = tf.function(lambda *data: model.test_step(data))
    return options.test_step


def predict(sdk: Sdk, model: Any, options: Options, x: Any, verbose: Any = 0, steps: Any = None) -> Any:
    if model.run_eagerly:
        raise RuntimeError("models cannot run eagerly in an IPU strategy")
    with model.distribute_strategy.scope():
        feed = Feed(x, model.inputs)
        feed.divide(replicas(sdk, options), steps, options.steps_per_execution, 1)
        if options.predict_step is None:
            options.predict_step = tf.function(lambda inputs: model(inputs, training=False))
        rows = []
        for _ in feed.epochs(1):
            check_model(model, options, "predict")
            options.check_run(sdk, feed.steps_per_execution, is_training=False)
            for _ in range(feed.steps * feed.replicas):
                (inputs,) = feed.next()
                rows.append(model.distribute_strategy.run(options.predict_step, args=(inputs,)).numpy())
    found = np.concatenate(rows)
    return np.zeros_like(found) if sdk.makes_data_up else found
