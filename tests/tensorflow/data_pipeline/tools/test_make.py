from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import io
import pickletools
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import UsageError
from ipulaunch.data_pipeline.sources.cifar_files import versions
from ipulaunch.data_pipeline.tools import make_cosmoflow, make_images
from ipulaunch.data_pipeline.tools.make_cosmoflow import draw_sample
from ipulaunch.data_pipeline.tools.new_set import encode_example, new_directory

VOLUMES: Dict[str, Any] = {
    "samples": 5,
    "validation_samples": 2,
    "side": 4,
    "samples_per_file": 2,
    "gzip": False,
    "seed": 0,
}
IMAGES: Dict[str, Any] = {
    "samples": 12,
    "validation_samples": 4,
    "side": 40,
    "files": 3,
    "classes": 5,
    "boxes": True,
    "seed": 0,
}


def quiet(event: Dict[str, Any]) -> None:
    pass


def contents(directory: Path) -> Dict[str, str]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def examples(path: Path, packed: bool = False) -> List[Any]:
    """What TensorFlow's own reader makes of a file."""
    records = tf.data.TFRecordDataset(str(path), "GZIP" if packed else "").as_numpy_iterator()
    return [tf.train.Example.FromString(record).features.feature for record in records]


def test_an_example_is_what_tensorflow_writes() -> None:
    features = {"b": b"\x00" * 300, "t": "word", "i": [0, 1, 127, 128, 1 << 40], "f": np.array([0.5, -2], np.float32)}
    found = tf.train.Example.FromString(encode_example(features)).features.feature
    assert found["b"].bytes_list.value[:] == [b"\x00" * 300]
    assert found["t"].bytes_list.value[:] == [b"word"]
    assert found["i"].int64_list.value[:] == [0, 1, 127, 128, 1 << 40]
    assert found["f"].float_list.value[:] == [0.5, -2]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_cosmoflow_has_the_published_form(packed: bool, tmp_path: Path) -> None:
    events: List[Dict[str, Any]] = []
    result = make_cosmoflow.run({**VOLUMES, "gzip": packed, "out": str(tmp_path / "set")}, events.append)
    assert (result["files"], result["samples"]) == (4, {"train": 5, "validation": 2})
    assert list(contents(tmp_path / "set")) == [
        *(f"train/part-{number:05}.tfrecord" for number in range(3)),
        "validation/part-00000.tfrecord",
    ]
    number = 0
    for path in sorted((tmp_path / "set" / "train").iterdir()):
        for features in examples(path, packed):
            volume, targets = draw_sample(4, 0, "train", number)
            (raw,) = features["x"].bytes_list.value
            assert np.array_equal(np.frombuffer(raw, "<i2").reshape(4, 4, 4, 4), volume)
            assert np.array_equal(np.array(features["y"].float_list.value, np.float32), targets)
            number += 1
    assert number == 5
    assert events[-1] == {"event": "progress", "what": "volumes", "done": 7, "total": 7}


def test_a_sample_depends_on_seed_split_and_number_alone() -> None:
    first = draw_sample(4, 0, "train", 1)[0]
    assert np.array_equal(first, draw_sample(4, 0, "train", 1)[0])
    for other in ((1, "train", 1), (0, "validation", 1), (0, "train", 2)):
        assert not np.array_equal(first, draw_sample(4, *other)[0])


def test_volumes_can_be_learnt_from() -> None:
    """Four plain statistics of a volume, fitted by a straight line to each target, beat guessing by far."""

    def describe(volume: np.ndarray) -> np.ndarray:
        field = np.log1p(volume[..., 0].astype(np.float64))
        near = [np.mean((field - np.roll(field, step, axis=0)) ** 2) for step in (1, 2, 4)]
        return np.log([volume.mean(), field.var(), *near])

    drawn = [draw_sample(16, 0, "train", number) for number in range(150)]
    inputs = np.array([[1, *describe(volume)] for volume, _ in drawn])
    targets = np.array([target for _, target in drawn])
    fit = np.linalg.lstsq(inputs[:100], targets[:100], rcond=None)[0]
    errors = np.abs(inputs[100:] @ fit - targets[100:]).mean(axis=0)
    assert (np.abs(targets) <= 1).all()
    assert (errors < [0.15, 0.45, 0.35, 0.1]).all()  # guessing 0 gives 0.5


def test_imagenet_has_the_published_form(tmp_path: Path) -> None:
    make_images.run({**IMAGES, "kind": "imagenet", "out": str(tmp_path / "set")}, quiet)
    names = [*(f"train-{number:05}-of-00003" for number in range(3)), "validation-00000-of-00001"]
    assert list(contents(tmp_path / "set")) == names
    found = [features for name in names for features in examples(tmp_path / "set" / name)]
    assert len(found) == 16
    sizes = set()
    for features in found:
        image = tf.io.decode_jpeg(features["image/encoded"].bytes_list.value[0])
        sizes.add(tuple(image.shape))
        assert image.shape[2] == 3
        assert features["image/height"].int64_list.value[:] == [image.shape[0]]
        assert 1 <= features["image/class/label"].int64_list.value[0] <= 5
        low, high = (features[f"image/object/bbox/{side}"].float_list.value[0] for side in ("xmin", "xmax"))
        assert 0 <= low < high <= 1
    assert len(sizes) > 8


def nearest_mean_accuracy(inputs: np.ndarray, labels: np.ndarray, train: int) -> float:
    means = np.stack([inputs[:train][labels[:train] == label].mean(axis=0) for label in range(10)])
    distances = ((inputs[train:, None] - means) ** 2).sum(axis=2)
    return float((distances.argmin(axis=1) == labels[train:]).mean())


def test_cifar10_is_the_binary_version_and_the_python_version(tmp_path: Path) -> None:
    options = {"samples": 203, "validation_samples": 50, "seed": 0, "kind": "cifar10", "out": str(tmp_path / "set")}
    make_images.run(options, quiet)
    binary, pickled = tmp_path / "set" / "cifar-10-batches-bin", tmp_path / "set" / "cifar-10-batches-py"
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    rows = [np.frombuffer((binary / f"{name}.bin").read_bytes(), np.uint8).reshape(-1, 3073) for name in names]
    assert [len(part) for part in rows] == [41, 41, 41, 40, 40, 50]
    for name, part in zip(names, rows):
        data = (pickled / name).read_bytes()
        pickletools.dis(data, io.StringIO())  # complains about a stack that does not come out even
        operations = [(code.name, value) for code, value, _ in pickletools.genops(data)]
        assert operations[0] == ("PROTO", 2)
        labels = [value for name_, value in operations[8 : 8 + len(part)] if name_ == "BININT1"]
        assert labels == part[:, 0].tolist()
        (pixels,) = [value for name_, value in operations if name_ == "BINSTRING"]
        assert pixels.encode("latin-1") == part[:, 1:].tobytes()
        texts = [value for name_, value in operations if name_ in ("SHORT_BINSTRING", "GLOBAL")]
        assert {"batch_label", "labels", "data", "filenames", "numpy.core.multiarray _reconstruct"} <= set(texts)
    meta = [value for _, value, _ in pickletools.genops((pickled / "batches.meta").read_bytes())]
    assert "airplane" in meta
    assert (binary / "batches.meta.txt").read_text().split()[0] == "airplane"
    everything = np.concatenate(rows)
    assert nearest_mean_accuracy(everything[:, 1:].astype(np.float32), everything[:, 0], 203) > 0.9


def test_cifar100_is_the_binary_version_and_the_python_version(tmp_path: Path) -> None:
    options = {"samples": 400, "validation_samples": 50, "seed": 0, "kind": "cifar100", "out": str(tmp_path / "set")}
    make_images.run(options, quiet)
    for split, count in (("train", 400), ("validation", 50)):
        (binary,), (pickled,) = versions(tmp_path / "set", split, 100)[1], versions(tmp_path / "set", split, 100)[3]
        (pixels, labels), (same_pixels, same_labels) = binary.read(), pickled.read()
        assert pixels.shape == (count, 32, 32, 3)
        np.testing.assert_array_equal(pixels, same_pixels)
        np.testing.assert_array_equal(labels, same_labels)
    folder = tmp_path / "set" / "cifar-100-binary"
    rows = np.frombuffer((folder / "train.bin").read_bytes(), np.uint8).reshape(400, 3074)
    np.testing.assert_array_equal(rows[:, 0], rows[:, 1] // 5)
    assert len(np.unique(rows[:, 1])) > 50
    assert len((folder / "fine_label_names.txt").read_text().split()) == 100


def test_mnist_has_the_published_form(tmp_path: Path) -> None:
    options = {"samples": 200, "validation_samples": 50, "seed": 0, "kind": "mnist", "out": str(tmp_path / "set")}
    make_images.run(options, quiet)
    parts = {path.name: gzip.decompress(path.read_bytes()) for path in (tmp_path / "set").iterdir()}
    assert parts["train-images-idx3-ubyte.gz"][:16] == bytes.fromhex("00000803 000000c8 0000001c 0000001c")
    assert parts["t10k-labels-idx1-ubyte.gz"][:8] == bytes.fromhex("00000801 00000032")
    images = [np.frombuffer(parts[f"{name}-images-idx3-ubyte.gz"], np.uint8, offset=16) for name in ("train", "t10k")]
    labels = [np.frombuffer(parts[f"{name}-labels-idx1-ubyte.gz"], np.uint8, offset=8) for name in ("train", "t10k")]
    inputs = np.concatenate(images).reshape(250, 784).astype(np.float32)
    assert nearest_mean_accuracy(inputs, np.concatenate(labels), 200) > 0.9


@pytest.mark.parametrize("kind", ["imagenet", "cifar10", "cifar100", "mnist", "cosmoflow"])
def test_the_same_options_make_the_same_set(kind: str, tmp_path: Path) -> None:
    run, options = (make_cosmoflow.run, VOLUMES) if kind == "cosmoflow" else (make_images.run, IMAGES)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run({**options, "kind": kind, "out": str(tmp_path / name), "seed": seed}, quiet)
    first, second, other = (contents(tmp_path / name) for name in "abc")
    assert first == second
    assert list(first) == list(other)
    assert first != other


def test_a_directory_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "file"):
        with pytest.raises(UsageError, match="not an empty directory"), new_directory(out):
            pass
    assert contents(tmp_path) == {"file": hashlib.sha256(b"").hexdigest()}


def test_what_a_killed_process_was_making_makes_way(tmp_path: Path) -> None:
    (tmp_path / ".making" / "train").mkdir(parents=True)
    (tmp_path / ".making" / "train" / "half").touch()
    with new_directory(tmp_path) as making:
        assert list(making.iterdir()) == []
        (making / "whole").touch()
    assert list(contents(tmp_path)) == ["whole"]


def test_two_processes_do_not_make_a_set_in_one_directory(tmp_path: Path) -> None:
    with new_directory(tmp_path) as making:
        (making / "file").touch()
        with pytest.raises(UsageError, match="another process is making a set in"), new_directory(tmp_path):
            pass
    assert list(contents(tmp_path)) == ["file"]


def test_without_locks_nothing_is_taken_for_the_work_of_a_killed_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with new_directory(tmp_path / "set") as making:
        with pytest.raises(UsageError, match="not an empty directory"), new_directory(tmp_path / "set"):
            pass
        (making / "file").touch()
    assert list(contents(tmp_path)) == ["set/file"]


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "empty"])
def test_an_interrupted_set_leaves_nothing(is_there: bool, tmp_path: Path) -> None:
    out = tmp_path / "set"
    if is_there:
        out.mkdir()

    def interrupt(event: Dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_cosmoflow.run({**VOLUMES, "out": str(out)}, interrupt)
    assert list(tmp_path.rglob("*")) == ([out] if is_there else [])
