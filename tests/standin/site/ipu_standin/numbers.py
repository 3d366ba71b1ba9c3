"""Where the SDK's TensorFlow and Keras treat half precision otherwise than the stock ones."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow.compat.v2 as keras_tf

_PLACES = (tf.compat.v1.nn, keras_tf.compat.v1.nn)  # ours, and where Keras looks
_BATCH_NORM = tf.keras.layers.BatchNormalization
_STOCK = tf.compat.v1.nn.fused_batch_norm
_KINDS = (tf.float16, tf.float32)


def install() -> None:
    for place in _PLACES:
        place.fused_batch_norm = _fused_batch_norm
    _BATCH_NORM._param_dtype = property(lambda layer: tf.as_dtype(layer.dtype or tf.float32))  # half stays half


def uninstall() -> None:
    for place in _PLACES:
        place.fused_batch_norm = _STOCK
    del _BATCH_NORM._param_dtype


def _fused_batch_norm(
    x: Any, scale: Any, offset: Any, mean: Any = None, variance: Any = None, epsilon: float = 0.001,
    data_format: str = "NHWC", is_training: bool = True, name: Any = None, exponential_avg_factor: float = 1.0,
) -> Any:  # fmt: skip
    if (not is_training or exponential_avg_factor != 1.0) and (mean is None or variance is None):
        raise ValueError("both mean and variance are needed outside of training")
    x, scale, offset = (tf.convert_to_tensor(value) for value in (x, scale, offset))
    mean = tf.constant([], x.dtype) if mean is None else tf.convert_to_tensor(mean)
    variance = tf.constant([], scale.dtype) if variance is None else tf.convert_to_tensor(variance)
    given = {"scale": scale, "offset": offset, "mean": mean, "variance": variance}
    for what, value in given.items():
        if value.dtype != scale.dtype or value.dtype not in _KINDS:
            raise TypeError(f"{what} is {value.dtype.name}, and scale is {scale.dtype.name}: the op wants one type")
    wide = [tf.cast(value, tf.float32) for value in given.values()]  # stock TensorFlow has them in no other type
    outputs, *statistics = _STOCK(
        x, *wide, epsilon=epsilon, data_format=data_format, is_training=is_training, name=name,
        exponential_avg_factor=exponential_avg_factor,
    )  # fmt: skip
    return (outputs, *(tf.cast(value, scale.dtype) for value in statistics))
