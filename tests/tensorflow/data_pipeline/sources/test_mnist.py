from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.image_arrays import Mnist
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.topology import Batch

IMAGES = np.random.RandomState(0).randint(0, 256, (12, 28, 28)).astype(np.uint8)
LABELS = (np.arange(12) % 10).astype(np.uint8)
ALONE = range(1)


def idx(values: np.ndarray, shape: Optional[Sequence[int]] = None) -> bytes:
    shape = shape or values.shape
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values.tobytes()


def plain(directory: Path) -> None:
    for part in ("train", "t10k"):
        (directory / f"{part}-images-idx3-ubyte").write_bytes(idx(IMAGES))
        (directory / f"{part}-labels-idx1-ubyte").write_bytes(idx(LABELS))


def packed(directory: Path) -> None:
    for part in ("train", "t10k"):
        (directory / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES)))
        (directory / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS)))


def dotted(directory: Path) -> None:
    for part in ("train", "t10k"):
        (directory / f"{part}-images.idx3-ubyte").write_bytes(idx(IMAGES))
        (directory / f"{part}-labels.idx1-ubyte").write_bytes(idx(LABELS))


def archive(directory: Path) -> None:
    np.savez(directory / "mnist.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS)


@pytest.mark.parametrize("write", [plain, packed, dotted, archive])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_published_form_gives_the_same_samples(write: Callable[[Path], None], split: str, tmp_path: Path) -> None:
    write(tmp_path)
    source = Mnist(tmp_path, split)
    images, labels = source.load(np.array([11, 0, 3]))
    assert source.samples == 12
    assert images.dtype == np.uint8 and images.shape == (3, 28, 28, 1)
    assert labels.dtype == np.int32 and labels.tolist() == [1, 0, 3]
    np.testing.assert_array_equal(images[..., 0], IMAGES[[11, 0, 3]])


def test_streams_have_images_labels_and_weights(tmp_path: Path) -> None:
    plain(tmp_path)
    batch = Batch(4, 1, 1)
    stream = training_stream(
        Mnist(tmp_path, "train"),
        batch,
        ALONE,
        shuffle=Shuffle(3),
        updates=range(len(IMAGES) // 4),
        by_replica=True,
        threads=2,
    )
    seen = np.concatenate([images.numpy()[..., 0] for images, _ in stream])
    assert sorted(image.tobytes() for image in seen) == sorted(image.tobytes() for image in IMAGES)
    images, labels, weights = next(iter(validation_stream(Mnist(tmp_path, "validation"), batch, ALONE, threads=1)))
    assert images.shape == (4, 28, 28, 1) and labels.numpy().tolist() == [0, 1, 2, 3] and weights.shape == (4,)


def test_a_missing_set_is_answered_with_its_files_and_where_they_come_from(tmp_path: Path) -> None:
    told = re.escape(f"no MNIST in {tmp_path}, or not all of its train files")
    with pytest.raises(DataError, match=told) as caught:
        Mnist(tmp_path, "train")
    hint = caught.value.hint
    assert "train-images-idx3-ubyte" in hint and "mnist.npz" in hint and "lecun.com" in hint
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda d: (d / "train-images-idx3-ubyte").write_bytes(idx(IMAGES)[:-1]), "has 9423 bytes, expected 9424"),
        (lambda d: (d / "train-images-idx3-ubyte").write_bytes(b""), "starts with nothing"),
        (lambda d: (d / "train-images-idx3-ubyte").write_bytes(idx(LABELS)), "expected 00000803: an idx file"),
        (lambda d: (d / "train-images-idx3-ubyte").write_bytes(b"\x1f\x8b broken"), "cannot be unpacked"),
        (lambda d: (d / "train-images-idx3-ubyte").write_bytes(idx(IMAGES[:3])), "a label for each"),
        (lambda d: (d / "train-images-idx3-ubyte").write_bytes(idx(IMAGES, (24, 14, 28))), "expected images of"),
        (lambda d: (d / "train-labels-idx1-ubyte").write_bytes(idx(LABELS + 1)), "labels are 1 to 10, expected 0 to 9"),
    ],
    ids=["cut off", "empty", "labels as images", "broken gzip", "other count", "other shape", "label out of range"],
)
def test_damaged_files_are_refused_by_name(harm: Any, said: str, tmp_path: Path) -> None:
    plain(tmp_path)
    harm(tmp_path)
    with pytest.raises(DataError, match=said) as caught:
        Mnist(tmp_path, "train")
    assert str(tmp_path / "train-images-idx3-ubyte") in caught.value.message


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"], ids=["empty", "text", "cut off"])
def test_a_damaged_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"mnist\.npz is not an archive of arrays"):
        Mnist(tmp_path, "train")


def test_an_archive_that_holds_objects_is_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", x_train=np.array([{}], object), y_train=LABELS)
    with pytest.raises(DataError, match=r"x_train\.npy holds object, expected numbers"):
        Mnist(tmp_path, "train")
