"""fit() and predict() as on IPUs: executions of many steps, replicas in turn, one update for all of them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from ipu_standin.feeds import Feed
from ipu_standin.options import Options
from ipu_standin.sdk import Sdk


def _replicas(sdk: Sdk, model: Any, options: Options) -> int:
    """Local replicas, as IPU Keras finds them: the IPUs of this instance by those that the model is on."""
    if sdk.ipus is None:
        raise RuntimeError("no IPU is configured: configure_ipu_system() comes first")
    for name in ("make_train_function", "make_test_function", "make_predict_function"):
        if getattr(type(model), name) is not getattr(tf.keras.Model, name):
            raise RuntimeError(f"{name} is overridden, which does not work in an IPU strategy")
    if options.ipus_per_replica > sdk.ipus:
        raise ValueError(f"{sdk.ipus} IPUs are attached, the model needs a multiple of {options.ipus_per_replica}")
    found = sdk.ipus // options.ipus_per_replica
    if sdk.is_under_poprun and found != sdk.local_replicas:
        raise RuntimeError(f"Keras finds {found} replicas on {sdk.ipus} IPUs, poprun was given {sdk.local_replicas}")
    return found


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
    replicas, strategy = _replicas(sdk, model, options), model.distribute_strategy
    with strategy.scope():
        feed = Feed(x, model.inputs, replicas, steps_per_epoch, options.steps_per_execution, epochs)
        options.check_run(feed.steps_per_execution, is_training=True)
        _share_first_weights(sdk, model, options)
        watchers = tf.keras.callbacks.CallbackList(
            callbacks, add_history=True, model=model, verbose=verbose, epochs=epochs, steps=feed.steps
        )
        watchers.on_train_begin()
        logs: Dict[str, Any] = {}
        for epoch in range(epochs):
            watchers.on_epoch_begin(epoch)
            own = [Own(model) for _ in range(replicas)]
            for first in feed.executions(epoch):
                watchers.on_train_batch_begin(first)
                for _ in range(feed.steps_per_execution // options.steps_per_update):
                    _update(sdk, model, options, feed, own)
                own[0].show_statistics(sdk)
                logs = _logs(sdk, model, options, own)
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


class Own:
    """What each replica has of its own: metrics, and statistics such as those of batch norms."""

    def __init__(self, model: Any) -> None:
        self.model, self.metrics = model, None  # type: Any, Any
        self.statistics = [variable.numpy() for variable in model.non_trainable_variables]

    def load(self) -> None:
        for variable, value in zip(self.model.non_trainable_variables, self.statistics):
            variable.assign(value)
        self.load_metrics()

    def load_metrics(self) -> None:
        if self.metrics is None:
            self.model.reset_metrics()
        else:
            for variable, value in zip(self._metric_variables(), self.metrics):
                variable.assign(value)

    def keep(self) -> None:
        self.statistics = [variable.numpy() for variable in self.model.non_trainable_variables]
        self.metrics = [variable.numpy() for variable in self._metric_variables()]

    def show_statistics(self, sdk: Sdk) -> None:
        """The host sees those of the instance's first replica; who reads them sees their mean over instances."""
        for variable, value in zip(self.model.non_trainable_variables, self.statistics):
            variable.assign((sdk.sum_over_instances(value) / sdk.instances).astype(value.dtype))

    def _metric_variables(self) -> List[Any]:
        return [variable for metric in self.model.metrics for variable in metric.variables]


def _update(sdk: Sdk, model: Any, options: Options, feed: Feed, own: List[Own]) -> None:
    """One weight update: the replicas take turns within a step, as an infeed serves them."""
    strategy, weights = model.distribute_strategy, model.trainable_variables
    accumulated: List[Any] = [None] * feed.replicas
    for step in range(options.steps_per_update):
        for replica in range(feed.replicas):
            gradients = _step(model, options, feed.next(), own[replica])
            accumulated[replica] = _accumulate(accumulated[replica], gradients, step, options)
    summed = [sum(parts) for parts in zip(*accumulated)]
    reduced = [sdk.sum_over_instances(np.asarray(part)) for part in summed]
    strategy.run(lambda: model.optimizer.apply_gradients(zip(map(tf.constant, reduced), weights)))


def _step(model: Any, options: Options, data: Tuple[Any, ...], own: Own) -> List[Any]:
    """Gradients of one micro-batch."""
    if options.train_step is None:

        @tf.function
        def train_step(inputs: Any, *rest: Any) -> Any:
            # As Keras 2.6 does before anything else.
            rest = tuple(value[:, tf.newaxis] if value.shape.rank == 1 else value for value in rest)
            targets, *weights = rest
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=True)
                loss = model.compiled_loss(targets, outputs, *weights, regularization_losses=model.losses)
                loss /= model.distribute_strategy.replicas_in_sync  # Keras does; gradients are then summed
            model.compiled_metrics.update_state(targets, outputs, *weights)
            return tape.gradient(loss, model.trainable_variables)

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
    """The metrics of the last replica, unless set_replication_options() asked for another reduction."""
    by_replica: List[Dict[str, Any]] = []
    averaged = set()
    for replica in own:
        replica.load_metrics()
        by_replica.append({})
        for metric in model.metrics:
            sdk.is_averaged = False
            by_replica[-1][metric.name] = metric.result().numpy()
            averaged |= {metric.name} if sdk.is_averaged else set()
    if sdk.makes_data_up:
        return dict.fromkeys(by_replica[0], 0.0)
    reduce: Dict[str, Callable[[List[Any]], Any]] = {
        "NONE": lambda values: values[-1],
        "LIST": list,
        "SUM": sum,
        "MEAN": np.mean,
    }
    return {
        name: reduce["MEAN" if name in averaged else options.metric_method]([logs[name] for logs in by_replica])
        for name in by_replica[0]
    }


def predict(sdk: Sdk, model: Any, options: Options, x: Any, verbose: Any = 0, steps: Any = None) -> Any:
    replicas = _replicas(sdk, model, options)
    with model.distribute_strategy.scope():
        feed = Feed(x, model.inputs, replicas, steps, options.steps_per_execution, 1)
        options.check_run(feed.steps_per_execution, is_training=False)
        if options.predict_step is None:
            options.predict_step = tf.function(lambda inputs: model(inputs, training=False))
        rows = []
        for _ in feed.executions(0):
            for _ in range(feed.steps_per_execution * replicas):
                (inputs,) = feed.next()
                rows.append(model.distribute_strategy.run(options.predict_step, args=(inputs,)).numpy())
    found = np.concatenate(rows)
    return np.zeros_like(found) if sdk.makes_data_up else found
