from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.data_pipeline.sources.normalise import density
from ipulaunch.workers.backends.ipu.feeds import as_fed, fed_as, joined

pytestmark = pytest.mark.core


def test_numbers_of_16_bits_arrive_as_they_are() -> None:
    counts = np.array([[-32768, -256, -1, 0, 1, 255, 256, 2049, 32767]], np.int16)
    stream = as_fed(tf.data.Dataset.from_tensors((counts, np.zeros(1, np.float32))))
    shape, dtype = fed_as(counts.shape, tf.int16)
    assert (stream.element_spec[0].shape, stream.element_spec[0].dtype) == (shape, dtype) == ((1, 9, 2), tf.uint8)
    ((bytes_of, _),) = stream
    assert np.array_equal(joined(bytes_of), counts)


def test_a_voxel_is_two_bytes_on_its_way_and_then_the_same_number() -> None:
    counts = np.arange(-32768, 32768).astype(np.int16).reshape(2, 16, 32, 16, 4)  # every number that a voxel can be
    stream = as_fed(tf.data.Dataset.from_tensors((counts, np.zeros(1, np.float32))))
    ((sent, _),) = stream
    assert len(sent.numpy().tobytes()) == counts.nbytes
    arrived = tf.function(joined)(sent)
    assert np.array_equal(arrived, counts)


@pytest.mark.parametrize("normalise", ["mean", "log"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16])
def test_the_density_of_a_volume_is_bit_for_bit_that_of_the_cpu(normalise: str, dtype: tf.DType) -> None:
    counts = np.random.Generator(np.random.Philox(3)).integers(0, 1 << 15, (2, 8, 8, 8, 4), np.int16)
    ((sent, _),) = as_fed(tf.data.Dataset.from_tensors((counts, np.zeros(1, np.float32))))
    on_ipu, on_cpu = (density(values, normalise, dtype).numpy() for values in (joined(sent), tf.constant(counts)))
    assert on_ipu.tobytes() == on_cpu.tobytes()


def test_other_types_are_left_alone() -> None:
    stream = tf.data.Dataset.from_tensors((np.zeros((1, 2), np.uint8), np.zeros(1, np.int32)))
    assert as_fed(stream) is stream
    assert fed_as((1, 2), tf.uint8) == ((1, 2), tf.uint8)
