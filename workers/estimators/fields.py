"""Streams as Estimators take them: each element a dictionary of the inputs, the targets and their weights."""

from __future__ import annotations

from typing import Any, Dict

import tensorflow as tf


def named(stream: tf.data.Dataset, micro_size: int) -> tf.data.Dataset:
    """The micro-batches of a stream; where it has no weights all samples count alike."""

    def name(inputs: Any, targets: Any, *weights: Any) -> Dict[str, Any]:
        return {"inputs": inputs, "targets": targets, "weights": weights[0] if weights else tf.ones([micro_size])}

    return stream.map(name)
