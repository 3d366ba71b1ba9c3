"""ImageNet's records of which some are bad and replaced."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, List, Sequence

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.data_pipeline.order import Shuffle, epoch_order
from ipulaunch.data_pipeline.sources.imagenet import ImagenetRecords
from ipulaunch.data_pipeline.sources.source import data_errors
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.data_pipeline.tools.new_set import encode_example
from ipulaunch.topology import Batch

ALONE = range(1)
SINGLE = Batch(1, 1, 1)


def jpeg(pixels: np.ndarray) -> bytes:
    encoded: bytes = tf.io.encode_jpeg(pixels, quality=95).numpy()
    return encoded


def plain_jpeg(number: int) -> bytes:
    """An image of one grey level that says its number."""
    return jpeg(np.full((20, 30, 3), 8 * number, np.uint8))


def example(encoded: bytes, label: int) -> bytes:
    return encode_example({"image/encoded": encoded, "image/class/label": [label]})


NOISY = np.random.RandomState(0).randint(0, 256, (60, 80, 3)).astype(np.uint8)
NOISE = jpeg(NOISY)


@pytest.fixture
def one(write: Any, tmp_path: Path) -> Callable[..., ImagenetRecords]:
    """A set of the given records, of which the bad ones are replaced."""

    def make(records: Sequence[bytes], augment: bool = True, side: int = 32) -> ImagenetRecords:
        split = "train" if augment else "validation"
        write(f"{split}-00000-of-00001", records)
        return ImagenetRecords(tmp_path, split, seed=5, augment=augment, threads=2, side=side, replaces_bad=True)

    return make


def labels_of(source: ImagenetRecords, batch: Batch = SINGLE, epochs: int = 1) -> List[int]:
    """The labels by number, epoch after epoch."""
    if not source.augment:
        return [int(label) for _, labels, _ in validation_stream(source, batch, ALONE, threads=2) for label in labels]
    updates = range(epochs * (source.samples // batch.global_size))
    stream = training_stream(source, batch, ALONE, shuffle=Shuffle(1), updates=updates, by_replica=False, threads=2)
    rows = np.array([label for _, labels in stream for label in labels.numpy()]).reshape(epochs, -1)
    return [
        int(row[at])
        for epoch, row in enumerate(rows)
        for at in np.argsort(epoch_order(source.samples, Shuffle(1), epoch))
    ]


def test_bad_records_can_be_replaced_by_their_neighbours(one: Callable[..., ImagenetRecords]) -> None:
    records = [example(plain_jpeg(n), n + 1) for n in range(6)]
    records[2], records[5] = example(NOISE[:-2000], 3), example(plain_jpeg(5), 0)
    source = one(records, augment=False)
    assert labels_of(source) == [0, 1, 3, 3, 4, 0]
    assert sorted(source.bad) == [2, 5]
    assert re.search(r"record 2 at byte \d+: the image cannot be decoded: [^{}]*JPEG", source.bad[2].message)


def test_what_was_replaced_is_not_taken_for_the_cause_of_a_later_failure(one: Callable[..., ImagenetRecords]) -> None:
    source = one([example(plain_jpeg(0), 1), example(NOISE[:-2000], 2)], augment=False)
    with pytest.raises(tf.errors.ResourceExhaustedError), data_errors(source):
        labels_of(source)
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")
    assert list(source.bad) == [1]


def with_thumbnail(encoded: bytes) -> bytes:
    """A JPEG that holds another one in its EXIF segment, with an end of its own."""
    exif = b"Exif\0\0" + plain_jpeg(3)
    return encoded[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + encoded[2:]


def without_table(encoded: bytes, marker: bytes) -> bytes:
    """A JPEG whose first table of a kind is all ones."""
    start = encoded.index(marker) + 4
    return encoded[:start] + b"\xff" * 60 + encoded[start + 60 :]


UNDECODABLE = {
    "cut off": NOISE[:-300],
    "without its last byte": NOISE[:-1],
    "cut off, with a thumbnail": with_thumbnail(NOISE)[:-300],
    "a cut-off PNG": tf.io.encode_png(NOISY).numpy()[:-300],
    "a changed PNG": tf.io.encode_png(NOISY).numpy().replace(b"IDAT", b"IDXT"),
    "a progressive one, cut off": tf.io.encode_jpeg(NOISY, progressive=True).numpy()[:-300],
    "Huffman tables": without_table(NOISE, b"\xff\xc4"),
    "quantisation tables": without_table(NOISE, b"\xff\xdb"),
}


@pytest.mark.parametrize("augment", [True, False], ids=["train", "validation"])
@pytest.mark.parametrize("encoded", UNDECODABLE.values(), ids=list(UNDECODABLE))
def test_an_image_that_cannot_be_decoded_is_replaced(
    encoded: bytes, augment: bool, one: Callable[..., ImagenetRecords]
) -> None:
    records = [example(with_thumbnail(plain_jpeg(n)), n + 1) for n in range(4)]
    records[1] = example(encoded, 2)
    source = one(records, augment=augment)
    epochs = 4 if augment else 1
    assert labels_of(source, epochs=epochs) == [0, 2, 2, 3] * epochs
    assert list(source.bad) == [1] and "the image cannot be decoded" in source.bad[1].message


def test_no_damage_of_an_image_gets_past_the_skipping_of_bad_records(one: Callable[..., ImagenetRecords]) -> None:
    """What the training's own decoder refuses, whichever part of the image it decodes, was found before."""
    draw = np.random.RandomState(3)
    kinds = [NOISE, tf.io.encode_jpeg(NOISY, progressive=True).numpy(), tf.io.encode_png(NOISY).numpy()]
    records = [example(NOISE, 1)] * 4
    for number in range(120):
        damaged = bytearray(kinds[number % 3])
        start = draw.randint(2, len(damaged))
        if number % 4:
            damaged[start : start + 20] = draw.bytes(len(damaged[start : start + 20]))
        else:
            del damaged[start:]
        records.append(example(bytes(damaged), 1))
    source = one(records, side=8)
    labels_of(source, Batch(4, 1, 1), epochs=4)
    assert len(source.bad) > 40


def test_an_image_is_looked_at_once(one: Callable[..., ImagenetRecords], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: List[bytes] = []
    monkeypatch.setattr("ipulaunch.data_pipeline.sources.image_decoding.defect_of", looked.append)
    source = one([example(plain_jpeg(n), n + 1) for n in range(4)])
    source.replaces_bad = False
    labels_of(source)
    assert not looked
    source.replaces_bad = True
    for _ in range(3):  # one epoch after the other: two threads may look at an image of two epochs at the same time
        labels_of(source)
    assert sorted(looked) == sorted(plain_jpeg(n) for n in range(4))


@pytest.mark.parametrize("size", [1, 3, 32])
def test_a_traced_stream_says_which_records_were_read(size: int, one: Callable[..., ImagenetRecords]) -> None:
    records = [example(plain_jpeg(n % 30), n + 1) for n in range(96)]
    records[7] = example(NOISE[:-2000], 8)
    source = one(records)
    batch = Batch(size, 1, 1)
    updates = range(96 // size)
    stream = training_stream(
        source, batch, ALONE, shuffle=Shuffle(1), updates=updates, by_replica=False, threads=2, traced=True
    )
    order = epoch_order(96, Shuffle(1), 0).reshape(-1, size)
    for row, (images, labels, (_, planned, read)) in zip(order, stream):
        assert images.shape == (size, 32, 32, 3)
        assert planned.numpy().tolist() == row.tolist()
        assert read.numpy().tolist() == labels.numpy().tolist() == [8 if n == 7 else n for n in row.tolist()]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("augment", [True, False], ids=["train", "validation"])
def test_a_file_that_vanishes_in_the_run_is_replaced_by_the_first_record_of_the_next(
    augment: bool, packed: bool, write: Any, tmp_path: Path
) -> None:
    split = "train" if augment else "validation"
    paths = [
        write(f"{split}-0000{file}-of-00003", [example(plain_jpeg(0), n + 1) for n in numbers], packed=packed)
        for file, numbers in enumerate((range(2), range(2, 122), range(122, 124)))
    ]
    source = ImagenetRecords(tmp_path, split, seed=5, augment=augment, threads=2, side=32, replaces_bad=True)
    paths[1].unlink()
    assert labels_of(source) == [0, 1, *[122] * 120, 122, 123]
    assert sorted(source.bad) == list(range(2, 122))
