"""How long updates wait for their input."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipulaunch.data_pipeline.parallel import cores
from ipulaunch.workers.models.variables import read_variable


class InputWait:
    """Takes micro-batches out of a stream, and adds up the time from asking for one until it is there.

    What threads read ahead meanwhile costs an update nothing, and does not count. The clock is TensorFlow's: a call
    into Python for every micro-batch would wait for the threads that read. Steps of an update that have no core to run
    on must not ask yet, or they would wait for a core and not for data.
    """

    def __init__(self) -> None:
        self.most_at_once = cores()  # steps
        self.total = tf.Variable(0.0, trainable=False, dtype=tf.float64, name="input_wait")

    @property
    def seconds(self) -> float:
        """In all updates so far."""
        return float(read_variable(self.total))

    def next(self, stream: Any) -> Any:
        """The next element, in the graph of an update; whatever takes it starts when its time is taken."""
        asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            element = next(stream)
        with tf.control_dependencies(tf.nest.flatten(element)):
            given = tf.timestamp()
        with tf.control_dependencies([given]):
            self.total.assign_add(given - asked, read_value=False)
            return tf.nest.map_structure(tf.identity, element)
