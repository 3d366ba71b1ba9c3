from __future__ import annotations

from typing import Iterator

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.data_pipeline.sources.normalise import density
from ipulaunch.workers.models.layers import CountsToDensity, Downsample, GroupNorm, Normalise, Scale

pytestmark = pytest.mark.core


@pytest.fixture
def half() -> Iterator[None]:
    tf.keras.mixed_precision.set_global_policy("float16")
    yield
    tf.keras.mixed_precision.set_global_policy("float32")


def test_pixels_are_normalised_by_colour() -> None:
    pixels = np.array([[[[0, 100, 255]]]], np.uint8)
    layer = Normalise((0.0, 100.0, 5.0), (1.0, 2.0, 250.0), "normalise")
    assert layer(pixels).numpy().tolist() == [[[[0.0, 0.0, 1.0]]]]
    assert Normalise((55.0,), (2.0,), "normalise")(pixels).numpy().tolist() == [[[[-27.5, 22.5, 100.0]]]]


def test_what_the_network_reads_in_16_bits_is_what_the_host_would_send(half: None) -> None:
    counts = np.random.RandomState(0).randint(0, 32767, (1, 32, 32, 32, 4)).astype(np.int16)
    for how in ("log", "mean"):
        values = CountsToDensity(how, "density")(counts)
        assert values.dtype == tf.float16
        sent = tf.cast(density(counts, how, tf.float32), tf.float16)
        np.testing.assert_allclose(values, sent, rtol=1e-3)  # a last bit of 16
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    from_bytes = Normalise((123.675,), (58.395,), "normalise")(pixels)
    from_floats = Normalise((123.675,), (58.395,), "normalise")(pixels.astype(np.float32))
    assert from_bytes.dtype == tf.float16
    assert np.array_equal(from_bytes, from_floats)


def test_groups_have_mean_0_and_variance_1_in_every_sample() -> None:
    values = np.random.RandomState(0).normal(3, 5, (4, 6, 6, 8)).astype(np.float32)
    normal = GroupNorm(2, 0.0, "gn")(values).numpy().reshape(4, 36, 2, 4)
    np.testing.assert_allclose(normal.mean(axis=(1, 3)), np.zeros((4, 2)), atol=1e-5)
    np.testing.assert_allclose(normal.var(axis=(1, 3)), np.ones((4, 2)), rtol=1e-4)


def test_groups_are_scaled_and_shifted_by_channel() -> None:
    layer = GroupNorm(1, 0.0, "gn")
    values = np.array([[[[1.0, 3.0]]]], np.float32)
    np.testing.assert_allclose(layer(values), [[[[-1, 1]]]], rtol=1e-6)
    layer.set_weights([np.array([2.0, 3.0]), np.array([10.0, 20.0])])
    np.testing.assert_allclose(layer(values), [[[[8, 23]]]], rtol=1e-6)


def test_groups_can_start_from_0() -> None:
    layer = GroupNorm(1, 0.0, "gn", gamma="zeros")
    assert layer(np.array([[[[1.0, 3.0]]]], np.float32)).numpy().tolist() == [[[[0.0, 0.0]]]]
    assert [weight.numpy().tolist() for weight in layer.trainable_weights] == [[0.0, 0.0], [0.0, 0.0]]


def test_large_groups_keep_their_statistics_in_16_bits(half: None) -> None:
    values = np.random.RandomState(0).normal(0, 1000, (1, 64, 64, 4)).astype(np.float16)
    normal = GroupNorm(1, 1e-5, "gn")(values)
    assert normal.dtype == tf.float16
    assert np.std(tf.cast(normal, tf.float32)) == pytest.approx(1, rel=1e-2)


def test_downsampling_takes_every_second_pixel_and_adds_channels_of_zeros() -> None:
    pixels = np.arange(1, 10, dtype=np.float32).reshape(1, 3, 3, 1)
    layer = Downsample(name="shortcut")
    assert layer(pixels).numpy().tolist() == [[[[1, 0], [3, 0]], [[7, 0], [9, 0]]]]
    assert layer.weights == []
    volume = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2, 1)
    assert Downsample(name="shortcut")(volume).numpy().tolist() == [[[[[1, 0]]]]]


def test_scale_multiplies() -> None:
    assert Scale(1.5, "stretch")(np.array([[2.0, -4.0]], np.float32)).numpy().tolist() == [[3.0, -6.0]]
