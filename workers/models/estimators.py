"""A network as Estimators take it: functions from the fields of a micro-batch to its loss or its measures, by stage."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import tensorflow as tf

from ipulaunch.configs.errors import SettingsError
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology import Batch
from ipulaunch.topology.networks.network import Layer, Network
from ipulaunch.workers.models.build import make_layers
from ipulaunch.workers.models.measures import Measure
from ipulaunch.workers.models.optimizers import scaled_rate, smoothing

Made = Tuple[Layer, Any]
Stage = Callable[..., Any]


def make_chain(
    network: Network,
    splits: Sequence[str],
    dropout: Callable[[float, str], Any],
    measures: Sequence[Measure],
    *,
    native_half: bool,
    is_training: bool,
) -> List[Stage]:
    """The stages. The first takes `inputs`, `targets` and `weights`, the others what the one before them returns.

    The last returns in training the mean loss, otherwise every measure of every sample, and then the weights.
    """
    _refuse_statistics(network)
    parts: List[List[Made]] = [[]]
    for layer, made in make_layers(network, dropout, native_half):
        if layer.name in splits:
            parts.append([])
        parts[-1].append((layer, made))

    def last(outputs: Any, targets: Any, weights: Any) -> Any:
        if is_training:
            return tf.reduce_mean(measures[0].of(targets, outputs) * weights)
        return (*(measure.of(targets, outputs) for measure in measures), weights)

    first = network.layers[0].name
    names = [first, *(part[-1][0].name for part in parts[:-1])]
    stages = [_stage(part, name, is_training) for part, name in zip(parts, names)]
    end = stages.pop()
    return [*stages, lambda inputs, targets, weights: last(*end(inputs, targets, weights))]


def _stage(part: Sequence[Made], first: str, is_training: bool) -> Stage:
    def run(inputs: Any, targets: Any, weights: Any) -> Any:
        values: Dict[str, Any] = {first: inputs}
        outputs = inputs
        for layer, made in part:
            read = [values[source] for source in layer.inputs]
            given = {"training": is_training} if layer.kind == "dropout" else {}
            outputs = made(read if len(read) > 1 else read[0], **given)
            values[layer.name] = outputs
        return outputs, targets, weights

    return run


def _refuse_statistics(network: Network) -> None:
    if any(layer.kind == "batch_norm" for layer in network.layers):
        raise SettingsError(
            f"{network.name} has batch statistics, which an Estimator does not carry from update to update",
            hint="use --model cifar_cnn, or --norm-layer group_norm",
        )


def in_turn(stages: Sequence[Stage], fields: Dict[str, Any]) -> Any:
    """What the stages give when each runs after the one before it."""
    values = stages[0](**fields)
    for stage in stages[1:]:
        values = stage(*values)
    return values


def named(stream: tf.data.Dataset, micro_size: int) -> tf.data.Dataset:
    """The micro-batches of a stream as dictionaries; without weights in it, all samples weigh the same."""

    def name(inputs: Any, targets: Any, *weights: Any) -> Dict[str, Any]:
        return {"inputs": inputs, "targets": targets, "weights": weights[0] if weights else tf.ones([micro_size])}

    return stream.map(name)


def make_metrics(measures: Sequence[Measure]) -> Callable[..., Dict[str, Any]]:
    """What takes every measure of samples, in any shape, and then their weights, to TensorFlow 1's metrics.

    The names are not the measures' own: an Estimator keeps `loss` for itself.
    """

    def metrics(*values: Any) -> Dict[str, Any]:
        *measured, weights = values
        return {
            f"mean_{measure.name}": tf.compat.v1.metrics.mean(value, weights)
            for measure, value in zip(measures, measured)
        }

    return metrics


def make_optimizer(settings: WorkloadSettings, batch: Batch) -> Any:
    """The optimizer of TensorFlow 1 that the settings ask for, with the constants that Keras gives it."""
    chosen, train = settings.optimizer, tf.compat.v1.train
    rate = scaled_rate(chosen, batch)
    constants: Dict[str, float] = {"epsilon": 1e-7 if chosen.epsilon is None else chosen.epsilon}
    if chosen.name == "adadelta":
        return train.AdadeltaOptimizer(rate, rho=0.95, **constants)
    if chosen.name == "adam":
        return train.AdamOptimizer(rate, **constants)
    if chosen.name == "rmsprop":
        return train.RMSPropOptimizer(rate, decay=smoothing(chosen, batch), momentum=chosen.momentum, **constants)
    if chosen.momentum:
        return train.MomentumOptimizer(rate, chosen.momentum)
    return train.GradientDescentOptimizer(rate)
