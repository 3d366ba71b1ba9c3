"""The IPU backend: PopDist, the SDK's distribution strategies and its Keras. For Poplar SDK 2.6 to 3.4."""

from __future__ import annotations

import functools
from typing import Any, Callable, ContextManager, Dict, List, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import NotReadyError, SettingsError
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place
from ipulaunch.workers.collective import Alone
from ipulaunch.workers.measures import Measure


class Sdk(NamedTuple):
    """What we use of the Poplar SDK, from wherever this version of it keeps it."""

    popdist: Any
    ipu: Any
    reduction_method: Any
    popdist_strategy: Any
    join: Callable[[], None]  # meets the other instances on the host network
    sum: Callable[[Any], Any]  # of a tensor, over all instances


def load_sdk() -> Sdk:
    """The SDK's modules: nothing of it is imported anywhere else."""
    try:
        return _import_sdk()
    except ImportError as error:
        raise NotReadyError(
            f"the Poplar SDK's TensorFlow is not here: {error}",
            hint="source <sdk>/enable (SDK 2.6 or later) and pip install the tensorflow and keras wheels inside it;"
            " --engine openmpi rehearses on CPUs without them",
        ) from error


def _import_sdk() -> Sdk:
    import popdist
    import popdist.tensorflow
    from tensorflow.python import ipu
    from tensorflow.python.ipu.gradient_accumulation import GradientAccumulationReductionMethod

    if not hasattr(popdist, "init"):  # SDK 2.6
        from tensorflow.python.ipu import horovod
        from tensorflow.python.ipu.horovod.popdist_strategy import PopDistStrategy

        def horovod_sum(value: Any) -> Any:
            return horovod.allreduce(value, op=horovod.Sum)  # the mean, unless told otherwise

        return Sdk(popdist, ipu, GradientAccumulationReductionMethod, PopDistStrategy, horovod.init, horovod_sum)

    from tensorflow.python.ipu.distributed import host_collective_ops
    from tensorflow.python.ipu.distributed.popdist_strategy import PopDistStrategy

    if hasattr(host_collective_ops, "allreduce"):
        allreduce = host_collective_ops.allreduce
    else:  # SDK 3.0
        allreduce = host_collective_ops.all_reduce

    def popdist_sum(value: Any) -> Any:
        return allreduce(value, tf.distribute.ReduceOp.SUM)

    return Sdk(popdist, ipu, GradientAccumulationReductionMethod, PopDistStrategy, popdist.init, popdist_sum)


class OverHosts:
    """Instances joined by the SDK's collectives on the hosts.

    Those sum 32-bit floats and whole numbers, no 64-bit floats. So everything travels as bytes in a table of whole
    numbers: an instance fills its own row, adding the others' zeros changes no bit, and all then sum in one order.
    """

    def __init__(self, sum_tensor: Callable[[Any], Any], place: Place) -> None:
        self.sum_tensor, self.place = sum_tensor, place

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The element-wise sum over all instances, the same on each."""
        rows = self._rows(values.tobytes())
        return functools.reduce(np.add, [np.frombuffer(row, values.dtype).reshape(values.shape) for row in rows])

    def first(self, text: str) -> str:
        """The text that instance 0 gives, on all."""
        data = text.encode()
        size = int.from_bytes(self._rows(len(data).to_bytes(8, "little"))[0], "little")
        return self._rows(data[:size].ljust(size))[0].decode()

    def _rows(self, data: bytes) -> List[bytes]:
        """What each instance gave; all give as many bytes."""
        table = np.zeros((self.place.instances, len(data)), np.int32)
        table[self.place.instance] = np.frombuffer(data, np.uint8)
        with tf.device("/CPU:0"):
            table = self.sum_tensor(tf.constant(table)).numpy()
        return [row.astype(np.uint8).tobytes() for row in table]


class IpuBackend:
    """Builds, trains and validates a model on the IPUs of this instance."""

    runs_by_replica = False

    def __init__(self, batch: Batch, place: Place) -> None:
        if place.ipus_per_replica > 1:
            # Keras would take the IPUs of an undivided model for so many replicas more.
            raise SettingsError(
                f"{place.ipus_per_replica} IPUs per replica, and the model is not divided into pipeline stages",
                hint="use --ipus-per-replica 1",
            )
        self.batch, self.place, self.sdk = batch, place, load_sdk()
        self.steps_per_update = batch.accumulation
        popdist, ipu = self.sdk.popdist, self.sdk.ipu
        config = ipu.config.IPUConfig()
        if popdist.isPopdistEnvSet():
            self.sdk.join()
            popdist.tensorflow.set_ipu_config(config, ipus_per_replica=place.ipus_per_replica, configure_device=True)
            config.configure_ipu_system()
            self.strategy = self.sdk.popdist_strategy()
        else:
            config.auto_select_ipus = place.ipus_per_replica
            config.configure_ipu_system()
            self.strategy = ipu.ipu_strategy.IPUStrategy()
        self.collective = OverHosts(self.sdk.sum, place) if place.instances > 1 else Alone()

    def scope(self) -> ContextManager[Any]:
        """Models are made inside it: only those can run on IPUs."""
        scope: ContextManager[Any] = self.strategy.scope()
        return scope

    def dropout(self, rate: float, name: str) -> Any:
        return tf.keras.layers.Dropout(rate, name=name)

    def prepare(
        self, model: tf.keras.Model, optimizer: Any, measures: Sequence[Measure], updates_per_epoch: int
    ) -> IpuTraining:
        """The model, ready for fit(); the first measure is the loss. The weights are those of instance 0 on all."""
        model = _with_32_bit_input(model)
        if self.batch.accumulation > 1:
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=self.batch.accumulation,
                gradient_accumulation_reduction_method=self.sdk.reduction_method.RUNNING_MEAN,
            )
        # Before SDK 3.1 fit() logs what the last replica of the instance measured.
        if self.place.local_replicas > 1 and hasattr(model, "set_replication_options"):
            model.set_replication_options(replicated_metric_reduction_method="MEAN")
        loss, *others = measures
        model.compile(
            optimizer=optimizer,
            loss=loss.of,
            metrics=[MeanOf(measure) for measure in others],
            steps_per_execution=updates_per_epoch * self.batch.accumulation,
        )
        return IpuTraining(model, measures, self.place, self.collective)

    def validate(self, training: IpuTraining, stream: tf.data.Dataset, samples: int) -> Dict[str, float]:
        """The measures over the whole set, as one process would find them."""
        steps = -(-samples // (self.batch.micro_size * self.batch.replicas))
        if training.validator is None:
            with self.scope():
                training.validator = _make_validator(training.model, training.measures, stream.element_spec, steps)
        rows = training.validator.predict(_without_int16(stream).map(_as_validator_inputs), verbose=0)
        totals = self.collective.sum(rows.sum(axis=0, dtype=np.float64))
        return {measure.name: float(totals[i] / totals[-1]) for i, measure in enumerate(training.measures)}


class IpuTraining:
    """A compiled model whose fit() counts the steps of one replica and logs the mean over all instances."""

    def __init__(self, model: tf.keras.Model, measures: Sequence[Measure], place: Place, collective: Any) -> None:
        self.model, self.measures, self.place, self.collective = model, measures, place, collective
        self.validator: Any = None

    def fit(
        self, stream: tf.data.Dataset, *, epochs: int, steps_per_epoch: int, callbacks: Sequence[Any], verbose: int
    ) -> None:
        self.model.fit(
            _without_int16(stream),
            epochs=epochs,
            # The SDK's fit() counts micro-batches of the stream here, and divides by the replicas of this instance.
            steps_per_epoch=steps_per_epoch * self.place.local_replicas,
            callbacks=[MeanOverInstances(self.collective, self.place.instances), *callbacks],
            verbose=verbose,
        )


class MeanOf(tf.keras.metrics.Mean):  # type: ignore[misc]
    """A measure as a Keras metric."""

    def __init__(self, measure: Measure) -> None:
        super().__init__(name=measure.name)
        self.measure = measure

    def update_state(self, targets: Any, outputs: Any, sample_weight: Any = None) -> Any:
        return super().update_state(self.measure.of(targets, outputs), sample_weight)


class MeanOverInstances(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Puts the mean over all instances in the place of this one's; comes before the callbacks that read the logs."""

    def __init__(self, collective: Any, instances: int) -> None:
        super().__init__()
        self.collective, self.instances = collective, instances

    def on_train_batch_end(self, step: int, logs: Any = None) -> None:
        values = np.array([float(value) for value in logs.values()])
        logs.update(zip(list(logs), self.collective.sum(values) / self.instances))


def _make_validator(model: tf.keras.Model, measures: Sequence[Measure], specs: Any, steps: int) -> tf.keras.Model:
    """The model with its measures as outputs: a row per sample, each value times the sample's weight, then the weight.

    predict() hands out the rows of all replicas; evaluate() would only tell the metrics of one. It is a model of its
    own because the steps of training need not divide those of validation, and Keras knows one number for a model.
    """
    _, target_spec, weight_spec = specs
    targets = tf.keras.Input(target_spec.shape[1:], dtype=target_spec.dtype, name="validation_targets")
    weights = tf.keras.Input((1,), dtype=weight_spec.dtype, name="validation_weights")

    def weigh(tensors: Any) -> Any:
        outputs, true, weight = tensors
        values = tf.stack([measure.of(true, outputs) for measure in measures], axis=-1)
        return tf.concat([values * weight, weight], axis=-1)

    rows = tf.keras.layers.Lambda(weigh, name="validation_rows")([model.output, targets, weights])
    validator = tf.keras.Model([model.input, targets, weights], rows, name="validator")
    validator.compile(steps_per_execution=steps)
    return validator


def _as_validator_inputs(inputs: Any, targets: Any, weights: Any) -> Any:
    return ((inputs, targets, weights[:, tf.newaxis]),)


def _with_32_bit_input(model: tf.keras.Model) -> tf.keras.Model:
    """The same layers, with the same weights, behind an input of a type that the IPU has."""
    if model.input.dtype != tf.int16:
        return model
    layers = model.layers
    if any(layer.input is not before.output for before, layer in zip(layers, layers[1:])):
        raise SettingsError(
            f"{model.name} takes 16-bit whole numbers, which the IPU has not, and is no plain chain of layers",
            hint="give the model an input of int32",
        )
    outputs = inputs = tf.keras.Input(model.input_shape[1:], dtype=tf.int32, name=layers[0].name)
    for layer in layers[1:]:
        outputs = layer(outputs)
    return tf.keras.Model(inputs, outputs, name=model.name)


def _without_int16(stream: tf.data.Dataset) -> tf.data.Dataset:
    """The stream, with inputs of a type that the IPU's feeds have: among the whole numbers 8, 32 and 64 bits."""
    if stream.element_spec[0].dtype != tf.int16:
        return stream
    return stream.map(lambda inputs, *rest: (tf.cast(inputs, tf.int32), *rest))
