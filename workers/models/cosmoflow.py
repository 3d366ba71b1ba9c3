"""The CosmoFlow network: convolution blocks, two dense layers, and outputs that reach a little beyond the targets."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipulaunch.configs.cosmoflow import CosmoflowSettings
from ipulaunch.data_pipeline.normalise import density

# tanh only nears 1, and targets lie in [-1, 1]: the published network stretches its output.
_OUTPUT_SCALE = 1.2


class CountsToDensity(tf.keras.layers.Layer):  # type: ignore[misc]
    """Normalises particle counts, which leave the host as int16, on the device."""

    def __init__(self, how: str, name: str) -> None:
        super().__init__(name=name)
        self.how = how

    def call(self, counts: Any) -> Any:
        return density(counts, self.how, self.compute_dtype)


def build_model(settings: CosmoflowSettings, dropout: Any) -> tf.keras.Model:
    """The network for these settings; `dropout(rate, name)` makes the backend's dropout layers."""
    model, data = settings.model, settings.data
    layers = tf.keras.layers
    pool = {"MaxPool3D": layers.MaxPool3D, "AveragePooling3D": layers.AveragePooling3D}[model.pooling_type]

    def activation(name: str) -> Any:
        if model.hidden_activation == "LeakyReLU":
            return layers.LeakyReLU(name=name)
        return layers.Activation(model.hidden_activation, name=name)

    shape = (data.side, data.side, data.side, data.channels)
    if data.host_preprocess:
        x = volume = tf.keras.Input(shape, name="density")
    else:
        volume = tf.keras.Input(shape, dtype="int16", name="counts")
        x = CountsToDensity(data.normalise, name="density")(volume)
    for block in range(1, model.n_conv_layers + 1):
        channels = model.conv_size * 2 ** (block - 1)
        x = layers.Conv3D(channels, model.kernel_size, padding="same", name=f"conv{block}")(x)
        x = activation(f"conv{block}_activation")(x)
        x = pool(2, name=f"conv{block}_pool")(x)
    x = layers.Flatten(name="flatten")(x)
    for number, units in enumerate((model.fc1_size, model.fc2_size), start=1):
        x = layers.Dense(units, name=f"fc{number}")(x)
        x = activation(f"fc{number}_activation")(x)
        x = dropout(model.dropout, f"fc{number}_dropout")(x)
    x = layers.Dense(data.targets, activation="tanh", name="targets")(x)
    x = layers.Lambda(lambda t: t * _OUTPUT_SCALE, name="stretch")(x)
    return tf.keras.Model(volume, x, name="cosmoflow")
