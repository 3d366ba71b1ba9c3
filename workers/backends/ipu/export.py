"""A model for servers with IPUs: compiled by the SDK, into a SavedModel around the executable."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from ipulaunch.configs.exports import INPUT, OUTPUT
from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.networks import network_of
from ipulaunch.topology.networks.splits import stage_ends
from ipulaunch.workers.backends.ipu.device import IpuDevice
from ipulaunch.workers.backends.ipu.model import called_again, divide, in_32_bits, stage_numbers


def export_model(
    model: tf.keras.Model,
    spec: tf.TensorSpec,
    directory: Path,
    iterations: int,
    settings: WorkloadSettings,
    device: IpuDevice,
) -> None:
    """Compile the model, with the weights that it has now as constants, and write it."""
    with device.scope():
        served = _with_fixed_batch(model, spec, settings, device)
        if settings.pipeline.splits:
            stages = stage_numbers(served, stage_ends(network_of(settings), settings.pipeline.splits))
            divide(served, stages, settings, iterations, device.sdk)
        with in_32_bits():
            served.compile(steps_per_execution=iterations)
        served.export_for_ipu_serving(str(directory), output_names=OUTPUT)


def _with_fixed_batch(
    model: tf.keras.Model, spec: tf.TensorSpec, settings: WorkloadSettings, device: IpuDevice
) -> tf.keras.Model:
    """The same layers behind an input of one size that is named as in the signature, and with a result in 32 bits."""
    inputs = tf.keras.Input(spec.shape[1:], batch_size=spec.shape[0], dtype=spec.dtype, name=INPUT)
    result = called_again(model, inputs, settings, device.sdk)
    with in_32_bits():
        outputs = tf.keras.layers.Activation("linear", name=OUTPUT)(result)
        return tf.keras.Model(inputs, outputs, name=model.name)
