from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.workers.backends.ipu.feeds import as_fed, fed_as, joined

pytestmark = pytest.mark.core


def test_numbers_of_16_bits_arrive_as_they_are() -> None:
    counts = np.array([[-32768, -256, -1, 0, 1, 255, 256, 2049, 32767]], np.int16)
    stream = as_fed(tf.data.Dataset.from_tensors((counts, np.zeros(1, np.float32))))
    shape, dtype = fed_as(counts.shape, tf.int16)
    assert (stream.element_spec[0].shape, stream.element_spec[0].dtype) == (shape, dtype) == ((1, 9, 2), tf.uint8)
    ((bytes_of, _),) = stream
    assert np.array_equal(joined(bytes_of), counts)


def test_other_types_are_left_alone() -> None:
    stream = tf.data.Dataset.from_tensors((np.zeros((1, 2), np.uint8), np.zeros(1, np.int32)))
    assert as_fed(stream) is stream
    assert fed_as((1, 2), tf.uint8) == ((1, 2), tf.uint8)
