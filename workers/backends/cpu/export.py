"""A model for servers on CPUs: a SavedModel of plain TensorFlow, which loads without Keras and without ipulaunch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import tensorflow as tf

from ipulaunch.configs.exports import OUTPUT, SIGNATURE


class ServedModel(tf.Module):  # type: ignore[misc]
    """The inference of a network, and the variables that it reads."""

    def __init__(self, model: tf.keras.Model, spec: tf.TensorSpec) -> None:
        super().__init__()
        self.weights = list(model.weights)  # TensorFlow saves what it finds in attributes

        # Clients know the input by the name of this parameter.
        def serve(input: Any) -> Dict[str, Any]:
            return {OUTPUT: tf.cast(model(tf.cast(input, model.input.dtype), training=False), tf.float32)}

        self.serve = tf.function(serve, input_signature=[spec])


def save_model(model: tf.keras.Model, spec: tf.TensorSpec, directory: Path) -> None:
    """Write a SavedModel with one signature."""
    served = ServedModel(model, spec)
    tf.saved_model.save(served, str(directory), signatures={SIGNATURE: served.serve})
