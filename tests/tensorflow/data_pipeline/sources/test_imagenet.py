from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, NotReadyError
from ipulaunch.data_pipeline.order import Shuffle, epoch_order, training_ids
from ipulaunch.data_pipeline.sources.augmentation import Draws, random_window
from ipulaunch.data_pipeline.sources.imagenet import ImagenetRecords
from ipulaunch.data_pipeline.sources.source import data_errors
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.topology import Batch

ALONE = range(1)
SINGLE = Batch(1, 1, 1)
# 12x8, inverted as Adobe writes it: red on the left half, cyan on the right.
CMYK = base64.b64decode(
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwANCQoLCggNCwoLDg4NDxMgFRMSEhMnHB4XIC4pMTAuKS0sMzpKPjM2RjcsLUBXQUZMTlJTUjI+WmFaUGBK"
    "UVJP/8AAFAgACAAMBEMRAE0RAFkRAEsRAP/EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYHCAkKC//EALUQAAIBAwMCBAMFBQQEAAABfQECAwAE"
    "EQUSITFBBhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6"
    "g4SFhoeIiYqSk5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrCw8TFxsfIycrS09TV1tfY2drh4uPk5ebn6Onq8fLz9PX29/j5+v/aAA4EQwBNAFkA"
    "SwAAPwDr/HP/ACKN9/2z/wDRi1R8Df8AI3WP/bT/ANFtVHwN/wAjdY/9tP8A0W1ekV5HXrleuUV//9k="
)


def picture(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Detail at many scales, as photographs have it."""
    draw = np.random.RandomState(seed)
    total = np.full((height, width, channels), 128, np.float32)
    for octave in range(1, 7):
        noise = draw.randn(2**octave, 2**octave, channels).astype(np.float32)
        total += tf.image.resize(noise, (height, width), "bicubic").numpy() * (60 / octave)
    return np.clip(total, 0, 255).astype(np.uint8)


def jpeg(pixels: np.ndarray) -> bytes:
    encoded: bytes = tf.io.encode_jpeg(pixels, quality=95).numpy()
    return encoded


def plain_jpeg(number: int, size: Tuple[int, int] = (20, 30)) -> bytes:
    """An image of one grey level that says its number."""
    return jpeg(np.full((*size, 3), 8 * number, np.uint8))


def example(encoded: Optional[bytes], label: Optional[int], boxes: Sequence[Sequence[float]] = ()) -> bytes:
    features: Dict[str, Any] = {"image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a.JPEG"]))}
    if encoded is not None:
        features["image/encoded"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded]))
    if label is not None:
        features["image/class/label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    for side, values in zip(("ymin", "xmin", "ymax", "xmax"), zip(*boxes)):
        name = f"image/object/bbox/{side}"
        features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
    record: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return record


@pytest.fixture
def numbered(write: Any, tmp_path: Path) -> Callable[..., Path]:
    """Files with the given numbers of records; image and label say the number of the record."""

    def make(counts: Sequence[int], split: str = "train") -> Path:
        first = 0
        for file, count in enumerate(counts):
            records = [example(plain_jpeg(n), n + 1) for n in range(first, first + count)]
            write(f"{split}-{file:05}-of-{len(counts):05}", records)
            first += count
        return tmp_path

    return make


@pytest.fixture
def one(write: Any, tmp_path: Path) -> Callable[..., ImagenetRecords]:
    """A set of the given records."""

    def make(records: Sequence[bytes], augment: bool = True, seed: int = 5, side: int = 224) -> ImagenetRecords:
        split = "train" if augment else "validation"
        write(f"{split}-00000-of-00001", records)
        return ImagenetRecords(tmp_path, split, seed=seed, augment=augment, threads=2, side=side)

    return make


def train(source: ImagenetRecords, batch: Batch = SINGLE, replicas: range = ALONE, epochs: int = 1) -> Any:
    updates = range(epochs * (source.samples // batch.global_size))
    return training_stream(source, batch, replicas, shuffle=Shuffle(1), updates=updates, by_replica=False, threads=2)


def images_of(source: ImagenetRecords, epochs: int = 1) -> List[np.ndarray]:
    """All images by number, epoch after epoch."""
    if not source.augment:
        return [images.numpy()[0] for images, _, _ in validation_stream(source, SINGLE, ALONE, threads=2)]
    rows = [images.numpy()[0] for images, _ in train(source, epochs=epochs)]
    found = []
    for epoch in range(epochs):
        order = epoch_order(source.samples, Shuffle(1), epoch)
        part = rows[epoch * source.samples : (epoch + 1) * source.samples]
        found += [part[position] for position in np.argsort(order)]
    return found


@pytest.mark.parametrize(("counts", "instances"), [([24], 1), ([5, 7, 1, 11], 4), ([0, 23, 0, 1], 2)], ids=str)
def test_an_epoch_is_every_sample_once_in_the_same_global_order(
    counts: List[int], instances: int, numbered: Callable[..., Path]
) -> None:
    batch = Batch(micro_size=1, replicas=4, accumulation=3)
    source = ImagenetRecords(numbered(counts), "train", seed=0, augment=True, threads=2, side=32)
    seen: List[int] = []
    for instance in range(instances):
        local = batch.replicas // instances
        replicas = range(instance * local, (instance + 1) * local)
        mine = []
        for images, labels in train(source, batch, replicas):
            assert images.dtype == tf.uint8 and images.shape == (1, 32, 32, 3) and labels.dtype == tf.int32
            assert np.abs(images.numpy().astype(int) - 8 * int(labels[0])).max() <= 2
            mine.append(int(labels[0]))
        expected = training_ids(epoch_order(24, Shuffle(1), 0), batch, replicas, by_replica=False)
        assert mine == expected.ravel().tolist()
        seen += mine
    assert sorted(seen) == list(range(24))


def test_the_same_pixels_for_any_number_of_instances_and_when_read_again(one: Callable[..., ImagenetRecords]) -> None:
    source = one([example(jpeg(picture(60, 80, seed=n)), n + 1) for n in range(8)], side=64)
    batch = Batch(micro_size=2, replicas=4, accumulation=1)

    def run(instances: int) -> np.ndarray:
        parts = []
        for instance in range(instances):
            local = 4 // instances
            replicas = range(instance * local, (instance + 1) * local)
            parts.append([images.numpy() for images, _ in train(source, batch, replicas, epochs=2)])
        shape = (2, -1, 2, 64, 64, 3)
        return np.concatenate([np.stack(part).reshape(shape) for part in parts], axis=1)

    first = run(1)
    for instances in (1, 2, 4):
        np.testing.assert_array_equal(run(instances), first)


def test_each_epoch_and_seed_has_crops_of_its_own(one: Callable[..., ImagenetRecords]) -> None:
    records = [example(jpeg(picture(60, 80, seed=n)), n + 1) for n in range(2)]
    first, _, second, _ = images_of(one(records), epochs=2)
    other = images_of(one(records, seed=6))[0]
    assert not np.array_equal(first, second) and not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("size", "side"),
    [((375, 500), 224), ((200, 150), 224), ((900, 1200), 224), ((100, 75), 64), ((200, 150), 32)],
    ids=str,
)
def test_training_images_are_near_the_float_resize_of_the_same_crop(
    size: Tuple[int, int], side: int, one: Callable[..., ImagenetRecords]
) -> None:
    """They differ by rounding alone."""
    encoded = jpeg(picture(*size))
    source = one([example(encoded, 1)] * 6, side=side)
    for number, image in enumerate(images_of(source)):
        draws = Draws(5, 0, number)
        (flip,) = draws.take(1)
        top, left, height, width = random_window(draws, *size)
        crop = tf.io.decode_and_crop_jpeg(encoded, (top, left, height, width), 3)
        expected = tf.image.resize(crop, (side, side)).numpy()[:, :: -1 if flip < 0.5 else 1]
        assert np.abs(image.astype(np.float32) - expected).max() <= 1


def test_crops_without_opencv_are_refused(one: Callable[..., ImagenetRecords], monkeypatch: pytest.MonkeyPatch) -> None:
    records = [example(jpeg(picture(60, 80)), 1)]
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(NotReadyError, match="need OpenCV") as error:
        one(records)
    assert error.value.hint == "pip install 'ipulaunch[images]'"
    one(records, augment=False)


@pytest.mark.parametrize(("side", "shorter"), [(224, 256), (32, 37), (1, 1)])
@pytest.mark.parametrize("size", [(375, 500), (500, 375), (256, 256), (100, 90), (257, 700)], ids=str)
def test_validation_images_are_the_centre(
    size: Tuple[int, int], side: int, shorter: int, one: Callable[..., ImagenetRecords]
) -> None:
    encoded = jpeg(picture(*size))
    (image,) = images_of(one([example(encoded, 1)], augment=False, side=side))
    height, width = (edge * shorter // min(size) for edge in size)
    whole = tf.image.resize(tf.io.decode_jpeg(encoded, 3, dct_method="INTEGER_ACCURATE"), (height, width)).numpy()
    top, left = (height - side) // 2, (width - side) // 2
    expected = np.floor(whole[top : top + side, left : left + side] + 0.5)
    # Processors round the resize apart where a value is half-way between two pixels, which it seldom is.
    assert np.abs(image - expected).max() <= 1
    assert np.mean(image != expected) < 0.01


@pytest.mark.parametrize("augment", [True, False], ids=["train", "validation"])
def test_odd_images_become_three_channels(augment: bool, one: Callable[..., ImagenetRecords]) -> None:
    grey = picture(40, 50, channels=1)
    colour = np.full((40, 50, 3), (200, 30, 90), np.uint8)
    alpha = np.concatenate([colour, colour[..., :1]], axis=-1)
    encodings = [
        CMYK,
        tf.io.encode_jpeg(grey).numpy(),
        tf.io.encode_png(colour).numpy(),
        tf.io.encode_png(alpha).numpy(),
        tf.io.encode_png(grey.astype(np.uint16) * 256).numpy(),
        tf.io.encode_jpeg(colour, progressive=True, quality=100).numpy(),
        jpeg(np.full((1, 1, 3), 77, np.uint8)),
        jpeg(np.full((3, 400, 3), 77, np.uint8)),
    ]
    cmyk, grey_1, png, png_4, grey_16, progressive, dot, line = images_of(
        one([example(encoded, 1) for encoded in encodings], augment=augment)
    )
    assert np.ptp(grey_1.astype(int), axis=-1).max() == 0 and np.ptp(grey_16.astype(int), axis=-1).max() == 0
    assert {tuple(pixel) for image in (png, png_4) for pixel in image.reshape(-1, 3)} == {(200, 30, 90)}
    assert np.abs(progressive.astype(int) - (200, 30, 90)).max() <= 3
    assert np.abs(dot.astype(int) - 77).max() <= 2 and np.abs(line.astype(int) - 77).max() <= 2
    red, green, _ = cmyk.reshape(-1, 3).T.astype(int)
    assert np.any(red - green > 100) or np.any(green - red > 100)  # one of the two halves at least


def test_a_crop_of_cmyk_is_that_part_of_the_whole(one: Callable[..., ImagenetRecords]) -> None:
    (image,) = images_of(one([example(CMYK, 1)], seed=1))
    draws = Draws(1, 0, 0)
    (flip,) = draws.take(1)
    top, left, height, width = random_window(draws, 8, 12)
    crop = tf.io.decode_jpeg(CMYK, 3)[top : top + height, left : left + width]
    expected = tf.image.resize(crop, (224, 224)).numpy()[:, :: -1 if flip < 0.5 else 1]
    assert np.abs(image - expected).mean() <= 3


def test_crops_keep_to_the_bounds_of_area_and_aspect() -> None:
    for sample in range(2000):
        window = random_window(Draws(0, 0, sample), 375, 500)
        assert 0 <= window.top <= 375 - window.height and 0 <= window.left <= 500 - window.width
        assert 0.079 <= window.height * window.width / (375 * 500) <= 1
        assert 0.74 <= window.width / window.height <= 1.35


def test_crops_are_spread_over_image_and_sizes() -> None:
    windows = np.array([random_window(Draws(0, epoch, 3), 400, 400) for epoch in range(2000)])
    middle = windows[:, :2] + windows[:, 2:] / 2
    assert np.abs(middle.mean(axis=0) - 200).max() < 6
    assert windows[:, 2].min() < 130 and windows[:, 2].max() > 380


def test_crops_show_a_tenth_of_an_object_where_objects_are_marked() -> None:
    box = (0.9, 0.9, 1.0, 1.0)
    for sample in range(300):
        top, left, height, width = random_window(Draws(0, 0, sample), 200, 200, [box])
        shown = max(0, top + height - 180) * max(0, left + width - 180)
        assert shown >= 0.1 * 20 * 20


def test_boxes_of_a_record_are_used(one: Callable[..., ImagenetRecords]) -> None:
    pixels = np.zeros((200, 200, 3), np.uint8)
    pixels[180:, 180:] = 255
    encoded = jpeg(pixels)
    marked = images_of(one([example(encoded, 1, [(0.0, 0.0, 0.0, 0.0), (0.9, 0.9, 1.0, 1.0)])] * 12))
    assert all(image.max() > 200 for image in marked)
    assert not all(image.max() > 200 for image in images_of(one([example(encoded, 1)] * 12)))


def test_an_image_too_narrow_for_any_crop_is_taken_whole() -> None:
    assert random_window(Draws(0, 0, 0), 10, 1000) == (0, 0, 10, 1000)


def test_draws_are_the_same_on_every_stack() -> None:
    assert Draws(1, 2, 3).take(2) == [0.7392729637493114, 0.1727219477163251]
    draws = Draws(1, 2, 3)
    assert [draws.take(1)[0], draws.take(1)[0]] == Draws(1, 2, 3).take(2)


def test_draws_that_are_restarted_are_those_of_the_other_sample() -> None:
    draws = Draws(1, 2, 9)
    for sample in (3, 4, 3):
        draws.take(21)
        draws.restart(sample)
        assert draws.take(40) == Draws(1, 2, sample).take(40)


NOISE = jpeg(picture(60, 80))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (example(None, 1), "there is no feature image/encoded"),
        (example(b"", 1), "there is no feature image/encoded"),
        (example(NOISE, None), "there is no feature image/class/label"),
        (example(NOISE, 0), "label 0, expected 1 to 1000"),
        (example(NOISE, 1001), "label 1001, expected 1 to 1000"),
        (example(NOISE, -1), "label -1, expected 1 to 1000"),
        (b"\xff\xff", "not a tf.train.Example"),
        (example(b"GIF89a......", 1), "neither a JPEG nor a PNG: it starts with 47494638"),
        (example(NOISE[:20], 1), "ends inside its header"),
        (example(NOISE[: len(NOISE) // 3], 1), "the image cannot be decoded: .*JPEG"),
        (example(tf.io.encode_png(picture(60, 80)).numpy()[:300], 1), "the image cannot be decoded: .*PNG"),
    ],
    ids=[
        *("no image", "empty image", "no label", "label 0", "label 1001", "label -1", "noise", "gif", "only a header"),
        *("half a JPEG", "half a PNG"),
    ],
)
@pytest.mark.parametrize("augment", [True, False], ids=["train", "validation"])
def test_a_bad_record_is_named(
    record: bytes, said: str, augment: bool, one: Callable[..., ImagenetRecords], tmp_path: Path
) -> None:
    good = example(NOISE, 7)
    source = one([good, good, record, good], augment=augment)
    with pytest.raises(DataError, match=said) as caught, data_errors(source):
        images_of(source)
    offset = 2 * (len(good) + 16)
    name = "train" if augment else "validation"
    place = f"{tmp_path / name}-00000-of-00001, record 2 at byte {offset}: "
    assert caught.value.message.startswith(place) and caught.value.exit_code == 5


def test_a_bad_record_far_behind_the_reading_is_found(one: Callable[..., ImagenetRecords]) -> None:
    records = [example(NOISE, 1)] * 400
    records[9] = example(NOISE[:-2000], 1)
    source = one(records, augment=False)
    with pytest.raises(DataError, match="record 9 at byte"), data_errors(source):
        for _ in validation_stream(source, Batch(2, 1, 1), ALONE, threads=2):
            pass


def test_what_is_no_imagenet_is_refused(write: Any, tmp_path: Path) -> None:
    def records() -> ImagenetRecords:
        return ImagenetRecords(tmp_path, "train", seed=0, augment=True, threads=1)

    (tmp_path / "train-of-thought.txt").write_text("not a record file")
    with pytest.raises(DataError, match="there are no train-NNNNN-of-NNNNN files"):
        records()
    write("train-00000-of-00001", [])
    with pytest.raises(DataError, match="hold no record"):
        records()
