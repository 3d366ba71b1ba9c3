"""Prepared sets of ImageNet against the published form, which is the oracle."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.sources.imagenet import find_files
from ipulaunch.data_pipeline.sources.pixel_records import PixelRecords, image_records
from ipulaunch.data_pipeline.sources.source import data_errors
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.data_pipeline.tools import build_imagenet, verify
from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records
from ipulaunch.topology import Batch

SIDE, SHORTER = 28, 32  # in the relation of 224 and 256
# Larger in both directions, a little larger, as large, smaller in one and in both, and very narrow.
SIZES = [(75, 100), (90, 60), (33, 47), (32, 50), (32, 32), (30, 80), (20, 24), (140, 33)]


def photograph(height: int, width: int, seed: int) -> np.ndarray:
    """Detail at many scales."""
    draw, total = np.random.RandomState(seed), np.full((height, width, 3), 128, np.float32)
    for octave in range(1, 5):
        noise = draw.randn(2**octave, 2**octave, 3).astype(np.float32)
        total += tf.image.resize(noise, (height, width), "bicubic").numpy() * (60 / octave)
    return np.clip(total, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of raw images of all sizes, one of them a PNG and one grey, for both splits."""
    place = tmp_path_factory.mktemp("raw")
    for split, classes in (("train", ("n01", "n02")), ("validation", ("n01", "n02"))):
        for label, synset in enumerate(classes):
            (place / split / synset).mkdir(parents=True)
            for number, size in enumerate(SIZES):
                pixels: Any = photograph(*size, seed=100 * label + number)
                encoded = tf.io.encode_jpeg(pixels[:, :, :1] if number == 1 else pixels, quality=92)
                if number == 2:
                    encoded = tf.io.encode_png(pixels)
                (place / split / synset / f"{synset}_{number}.JPEG").write_bytes(encoded.numpy())
    return place


def build(raw: Path, out: Path, report: Any = lambda event: None, **options: Any) -> Dict[str, Any]:
    given = {"shards": 3, "longest_side": None, "validation_labels": None, "workers": 2, **options}
    return build_imagenet.run({"raw": str(raw), "out": str(out), **given}, report)


@pytest.fixture(scope="module")
def sets(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """The published form, and what is made of the same images."""
    place = tmp_path_factory.mktemp("sets")
    forms: Dict[str, Dict[str, Any]] = {
        "published": {},
        "smaller": {"shorter_side": SHORTER},
        "pixels": {"shorter_side": SHORTER, "pixels": True},
        "all pixels": {"pixels": True},
    }
    for name, options in forms.items():
        build(raw, place / name, **options)
    return {name: place / name for name in forms}


def source(directory: Path, split: str = "validation", **more: Any) -> Any:
    given: Dict[str, Any] = {"seed": 3, "augment": split == "train", "threads": 2, "side": SIDE, **more}
    return image_records(directory, split, files=find_files(directory, split), **given)


def validation(directory: Path, side: int = SIDE) -> Tuple[np.ndarray, np.ndarray]:
    found = source(directory, side=side)
    rows = list(validation_stream(found, Batch(4, 1, 1), range(1), threads=2).as_numpy_iterator())
    images, labels, _ = (np.concatenate(column) for column in zip(*rows))
    return images, labels


def training(found: Any, instances: int = 1, updates: range = range(4)) -> Tuple[np.ndarray, np.ndarray]:
    """The images and labels of weight updates, as the instances together take them."""
    batch, parts = Batch(2, 2, 1), []
    for instance in range(instances):
        replicas = range(instance * 2 // instances, (instance + 1) * 2 // instances)
        stream = training_stream(
            found, batch, replicas, shuffle=Shuffle(1), updates=updates, by_replica=False, threads=2
        )
        parts.append(list(stream.as_numpy_iterator()))
    rows = [row for update in zip(*[iter(part) for part in parts]) for row in update] if instances > 1 else parts[0]
    images, labels = (np.concatenate(column) for column in zip(*rows))
    return images, labels


@pytest.mark.core
@pytest.mark.parametrize("name", ["pixels", "all pixels"])
def test_validation_on_pixels_is_that_on_the_published_files(name: str, sets: Dict[str, Path]) -> None:
    published, labels = validation(sets["published"])
    images, same_labels = validation(sets[name])
    assert isinstance(source(sets[name]), PixelRecords)
    assert np.array_equal(images, published) and np.array_equal(labels, same_labels)


def test_validation_on_smaller_images_is_close_to_that_on_the_published_files(tmp_path: Path) -> None:
    """JPEGs of quality 95 differ by less than one grey level in the mean, and by at most four in 99 of 100 values."""
    for split in ("train", "validation"):
        folder = tmp_path / "raw" / split / "n01"
        folder.mkdir(parents=True)
        for number, size in enumerate([(375, 500), (500, 333)]):
            encoded = tf.io.encode_jpeg(photograph(*size, seed=number), quality=92).numpy()
            (folder / f"{number}.JPEG").write_bytes(encoded)
    for name, options in {"published": {}, "smaller": {"shorter_side": 256}}.items():
        build(tmp_path / "raw", tmp_path / name, **options)
    published, images = (validation(tmp_path / name, 224)[0] for name in ("published", "smaller"))
    differences = np.abs(images.astype(int) - published)
    assert 0 < differences.mean() < 1
    assert np.quantile(differences, 0.99) <= 4


def features(out: Path, split: str) -> Dict[str, Any]:
    paths = [str(path) for path in sorted(out.glob(f"{split}-*"))]
    records = tf.data.TFRecordDataset(paths).as_numpy_iterator()
    found = [tf.train.Example.FromString(record).features.feature for record in records]
    return {one["image/filename"].bytes_list.value[0].decode(): one for one in found}


@pytest.mark.parametrize("split", ["train", "validation"])
def test_images_that_are_small_already_are_left_as_they_are(split: str, raw: Path, sets: Dict[str, Path]) -> None:
    found, kept = features(sets["smaller"], split), []
    for name, record in found.items():
        encoded = record["image/encoded"].bytes_list.value[0]
        height, width = (record[f"image/{side}"].int64_list.value[0] for side in ("height", "width"))
        assert tf.io.decode_image(encoded, expand_animations=False).shape[:2] == (height, width)
        assert min(height, width) <= SHORTER
        if encoded == (raw / split / name[:3] / name).read_bytes():
            kept.append(SIZES[int(name[4])])
    assert sorted(kept) == sorted(2 * [size for size in SIZES if min(size) <= SHORTER])


def test_both_splits_are_prepared_the_same_way(sets: Dict[str, Path]) -> None:
    for name, text in {
        "published": "",
        "smaller": "shorter side 32, JPEG quality 95",
        "pixels": "shorter side 32, pixels",
        "all pixels": "pixels",
    }.items():
        assert [source(sets[name], split).preparation for split in ("train", "validation")] == [text, text]
        result = verify.run({"directory": str(sets[name])}, lambda event: None)
        assert (result["defects"], result["form"]) == (0, "plain pixels" if "pixels" in name else "")


def test_training_takes_the_same_crops_from_either(sets: Dict[str, Path]) -> None:
    encoded, labels = training(source(sets["smaller"], "train"))
    pixels, same_labels = training(source(sets["pixels"], "train"))
    assert np.array_equal(labels, same_labels)
    assert np.abs(encoded.astype(int) - pixels).mean() < 3  # another window would differ by tens
    again, _ = training(source(sets["pixels"], "train"))
    assert np.array_equal(pixels, again)


def test_pixels_are_the_same_for_any_number_of_instances_and_after_a_resume(sets: Dict[str, Path]) -> None:
    found = source(sets["pixels"], "train")
    images, labels = training(found)
    by_two, labels_of_two = training(found, instances=2)
    assert np.array_equal(images, by_two) and np.array_equal(labels, labels_of_two)
    rest, _ = training(found, updates=range(3, 4))
    assert np.array_equal(images[-len(rest) :], rest)
    other_epoch, _ = training(found, updates=range(4, 8))
    assert not np.array_equal(np.sort(images, axis=None), np.sort(other_epoch, axis=None))


def spoilt(head: bytes, body: int = 12, label: int = 1) -> bytes:
    return encode_example({"image/format": "PPM", "image/class/label": [label], "image/encoded": head + bytes(body)})


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (spoilt(b"P6\n2 2\n255\n", 11), "image/encoded is a PPM of 22 bytes, expected 23"),
        (spoilt(b"P6\n2 2\n255\n", 13), "a PPM of 24 bytes, expected 23"),
        (spoilt(b"P6\n99999 99999\n255\n"), "image/encoded is a PPM of 99999 x 99999"),
        (spoilt(b"P6\n0 2\n255\n"), "no PPM with 8 bits a colour"),
        (spoilt(b"P6\n2 2\n65535\n"), "no PPM with 8 bits a colour"),
        (spoilt(tf.io.encode_jpeg(np.zeros((2, 2, 3), np.uint8)).numpy(), 0), "is a JPEG, expected a PPM"),
        (spoilt(b"P6\n2 2\n255\n", label=0), "label 0, expected 1 to 1000"),
        (encode_example({"image/format": "PPM", "image/class/label": [1]}), "there is no feature image/encoded"),
        (
            encode_example({"image/format": "PPM", "image/encoded": b"P6\n1 1\n255\nabc"}),
            "there is no feature image/class/label",
        ),
        (b"\xff\xff\xff", "not a tf.train.Example"),
    ],
    ids=["short", "long", "huge", "no width", "16 bits", "a JPEG", "label", "no image", "no label", "no example"],
)
def test_a_record_that_is_not_pixels_is_named(record: bytes, said: str, tmp_path: Path) -> None:
    good = spoilt(b"P6\n2 2\n255\n")
    write_records(tmp_path / "train-00000-of-00001", [good, record, good, good])
    found = source(tmp_path, "train", side=2)
    with pytest.raises(DataError, match=said) as caught, data_errors(found):
        training(found, updates=range(1))
    assert "train-00000-of-00001, record 1 at byte" in caught.value.message
    replacing = source(tmp_path, "train", side=2, replaces_bad=True)
    _, labels = training(replacing, updates=range(2))
    assert labels.tolist() == [0] * 8 and set(replacing.bad) == {1}


def contents(out: Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


@pytest.mark.parametrize("pixels", [False, True])
def test_a_killed_build_goes_on_with_what_is_whole(
    pixels: bool, raw: Path, sets: Dict[str, Path], tmp_path: Path
) -> None:
    options: Dict[str, Any] = {"shorter_side": SHORTER, "pixels": pixels}
    whole, out = contents(sets["pixels" if pixels else "smaller"]), tmp_path / "out"
    shutil.copytree(sets["pixels" if pixels else "smaller"], out)
    (out / ".ipulaunch-index.npz").unlink(missing_ok=True)
    (out / "train-00000-of-00003").unlink()
    (out / ".train-00000-of-00003.4194305").write_bytes(whole["train-00000-of-00003"][:1000])  # killed
    (out / "train-00001-of-00003").write_bytes(whole["train-00001-of-00003"][:-1])  # without power
    kept = out / "train-00002-of-00003"
    time = kept.stat().st_mtime_ns
    result = build(raw, out, **options)
    assert (result["kept"], kept.stat().st_mtime_ns) == (2, time)
    assert contents(out) == {name: data for name, data in whole.items() if name != ".ipulaunch-index.npz"}
    with pytest.raises(UsageError, match="begun with other quality"):
        build(raw, out, shorter_side=SHORTER, quality=80)


def test_an_estimate_comes_before_the_work(raw: Path, tmp_path: Path) -> None:
    events: List[Dict[str, Any]] = []
    result = build(raw, tmp_path / "out", events.append, shorter_side=SHORTER)
    first = events[0]
    assert first["event"] == "note"
    assert "32 images in 4 files: about" in first["text"] and "with 2 threads" in first["text"]
    said = float(first["text"].split("about ")[1].split(" GB")[0]) * 1e9
    assert 0.8 < result["bytes"] / said < 1.2


def test_a_disk_that_is_too_small_is_said_before_the_work(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 1000))  # type: ignore
    with pytest.raises(DataError, match=r"32 images take about 0\.0 GB in .*, which has 0\.0 GB to spare"):
        build(raw, tmp_path / "out", pixels=True)
    assert not list((tmp_path / "out").glob("*-of-*"))


@pytest.mark.parametrize(
    "options",
    [
        {"longest_side": 50, "shorter_side": 32},
        {"longest_side": 50, "pixels": True},
        {"quality": 90},
        {"quality": 90, "shorter_side": 32, "pixels": True},
    ],
)
def test_options_that_do_not_go_together(options: Dict[str, Any], raw: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        build(raw, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_as_written_does_not_count(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write: Callable[..., None] = build_imagenet.write_records

    def spoil(path: Path, records: Any) -> None:
        write(path, records)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    monkeypatch.setattr(build_imagenet, "write_records", spoil)
    with pytest.raises(DataError, match="is not as it was written"):
        build(raw, tmp_path / "out", shorter_side=SHORTER)
    assert set(contents(tmp_path / "out")) == {".ipulaunch-build.json"}
