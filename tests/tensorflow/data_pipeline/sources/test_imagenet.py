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
from ipulaunch.data_pipeline.sources.augmentation import Draws, Objects, flips_and_windows
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


def flip_and_window(seed: int, number: int, size: Tuple[int, int]) -> Tuple[bool, List[int]]:
    """What is drawn for a sample without objects in the first epoch."""
    (flip,), (window,) = flips_and_windows(Draws(seed, 0), np.array([number]), *np.array(size)[:, None])
    return bool(flip), window.tolist()


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
        flip, (top, left, height, width) = flip_and_window(5, number, size)
        crop = tf.io.decode_jpeg(encoded, 3)[top : top + height, left : left + width]
        expected = tf.image.resize(crop, (side, side)).numpy()[:, :: -1 if flip else 1]
        assert np.abs(image.astype(np.float32) - expected).max() <= 1
        # TensorFlow's op for crops lacks the neighbours of the columns at the edge.
        crop = tf.io.decode_and_crop_jpeg(encoded, (top, left, height, width), 3)
        near = tf.image.resize(crop, (side, side)).numpy()[:, :: -1 if flip else 1]
        differences = np.abs(image.astype(np.float32) - near)
        assert differences.max() <= 16 and differences.mean() <= 0.6


BOXES = [(0.0, 0.0, 0.5, 0.25), (0.6, 0.6, 0.9, 1.0)]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("micro_size", [1, 3, 12, 32])
def test_batches_are_those_of_one_sample_after_the_other(
    micro_size: int, packed: bool, write: Any, tmp_path: Path
) -> None:
    """Parsed, decoded as a whole and cropped by TensorFlow; exactly the same pixels."""
    kinds = [
        lambda pixels: jpeg(pixels),
        lambda pixels: tf.io.encode_jpeg(pixels, quality=85, chroma_downsampling=False).numpy(),
        lambda pixels: tf.io.encode_jpeg(pixels, progressive=True).numpy(),
        lambda pixels: tf.io.encode_jpeg(pixels[..., :1]).numpy(),
        lambda pixels: tf.io.encode_png(pixels).numpy(),
    ]
    draw, records = np.random.RandomState(micro_size), []
    for number in range(48):
        pixels = picture(*draw.randint(30, 200, 2), seed=number)
        records.append(example(kinds[number % len(kinds)](pixels), 1 + number, BOXES[: number % 3]))
    for file in range(3):
        write(f"train-{file:05}-of-00003", records[16 * file : 16 * file + 16], packed=packed)
    source = ImagenetRecords(tmp_path, "train", seed=5, augment=True, threads=2, side=48)
    found = [(image, int(label)) for images, labels in train(source, Batch(micro_size, 1, 1), epochs=2)
             for image, label in zip(images.numpy(), labels)]  # fmt: skip
    orders = [epoch_order(48, Shuffle(1), epoch)[: 48 // micro_size * micro_size] for epoch in range(2)]
    expected = [alone(records[number], number, epoch) for epoch, order in enumerate(orders) for number in order]
    assert [label for _, label in found] == [label for _, label in expected]
    for (image, _), (other, _) in zip(found, expected):
        np.testing.assert_array_equal(image, other)


def alone(record: bytes, number: int, epoch: int) -> Tuple[np.ndarray, int]:
    """A training image of 48 x 48 and its label, straight from its record."""
    import cv2

    features = tf.train.Example.FromString(record).features.feature
    pixels = tf.io.decode_image(features["image/encoded"].bytes_list.value[0], 3, expand_animations=False).numpy()
    sides = [features[f"image/object/bbox/{side}"].float_list.value for side in ("ymin", "xmin", "ymax", "xmax")]
    boxes = np.array(list(zip(*sides))).reshape(-1, 4)
    size, objects = np.array(pixels.shape[:2])[:, None], Objects(boxes, np.zeros(len(boxes), np.int64))
    (flip,), (window,) = flips_and_windows(Draws(5, epoch), np.array([number]), *size, objects)
    top, left, height, width = window
    image = cv2.resize(pixels[top : top + height, left : left + width], (48, 48))
    return image[:, :: -1 if flip else 1], features["image/class/label"].int64_list.value[0] - 1


@pytest.mark.parametrize(("module", "name"), [("cv2", "OpenCV"), ("simplejpeg", "simplejpeg")])
def test_crops_without_their_libraries_are_refused(
    module: str, name: str, one: Callable[..., ImagenetRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [example(jpeg(picture(60, 80)), 1)]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotReadyError, match=f"need {name}") as error:
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
    flip, (top, left, height, width) = flip_and_window(1, 0, (8, 12))
    crop = tf.io.decode_jpeg(CMYK, 3)[top : top + height, left : left + width]
    expected = tf.image.resize(crop, (224, 224)).numpy()[:, :: -1 if flip else 1]
    assert np.abs(image - expected).mean() <= 3


def test_boxes_of_a_record_are_used(one: Callable[..., ImagenetRecords]) -> None:
    pixels = np.zeros((200, 200, 3), np.uint8)
    pixels[180:, 180:] = 255
    encoded = jpeg(pixels)
    marked = images_of(one([example(encoded, 1, [(0.0, 0.0, 0.0, 0.0), (0.9, 0.9, 1.0, 1.0)])] * 12))
    assert all(image.max() > 200 for image in marked)
    assert not all(image.max() > 200 for image in images_of(one([example(encoded, 1)] * 12)))


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
