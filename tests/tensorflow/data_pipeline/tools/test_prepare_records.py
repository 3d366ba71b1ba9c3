"""Sets of record files that are prepared, against TensorFlow's own reading of the set they are made of."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, UsageError
from ipulaunch.data_pipeline.records.tfrecord import FOOTER, HEADER
from ipulaunch.data_pipeline.sources.imagenet import find_files
from ipulaunch.data_pipeline.sources.pixel_records import image_records
from ipulaunch.data_pipeline.tools import build_imagenet, verify
from ipulaunch.data_pipeline.tools.new_set import write_records
from ipulaunch.data_pipeline.tools.preparation import Preparation

SHORTER = 16
SIZES = [(30, 40), (40, 20), (16, 60), (12, 30), (17, 17)]  # two of them are small already
FILES = {"train": 3, "validation": 2}
CHANGED = {f"image/{name}" for name in ("encoded", "height", "width", "format", "colorspace", "channels")}

Features = Dict[str, Any]


def example(number: int, label: int) -> bytes:
    """A record as the published scripts write them, with features that nobody here knows."""
    height, width = SIZES[number % len(SIZES)]
    pixels = np.random.RandomState(number).randint(0, 255, (height // 4 + 1, width // 4 + 1, 3), np.uint8)
    pixels = pixels.repeat(4, 0).repeat(4, 1)[:height, :width]
    encoded = tf.io.encode_jpeg(pixels, quality=92).numpy()
    values: Dict[str, Any] = {
        "image/encoded": encoded, "image/height": [height], "image/width": [width], "image/format": "JPEG",
        "image/colorspace": "RGB", "image/channels": [3], "image/class/label": [label],
        "image/class/synset": f"n{label:08}", "image/class/text": "tench, Tinca tinca",
        "image/filename": f"n_{number}.JPEG", "image/object/bbox/label": [label, label],
        "image/object/bbox/xmin": [0.1, 0.2], "image/object/bbox/xmax": [0.5, 0.625],
        "image/object/bbox/ymin": [0.0, 0.3], "image/object/bbox/ymax": [0.75, 1.0],
        "my/floats": [1.5, -2.5], "my/nothing": [], "my/number": [-7],
    }  # fmt: skip
    return tf_example(values)


def tf_example(values: Dict[str, Any]) -> bytes:
    made: Features = {}
    for name, value in values.items():
        feature = tf.train.Feature()
        if isinstance(value, (bytes, str)):
            feature.bytes_list.value.append(value if isinstance(value, bytes) else value.encode())
        elif value and isinstance(value[0], float):
            feature.float_list.value.extend(value)
        else:
            feature.int64_list.value.extend(value)
        made[name] = feature
    data: bytes = tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()
    return data


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Seven training records in three files and five validation records in two, written by TensorFlow."""
    place = tmp_path / "published"
    place.mkdir()
    first = 0
    for split, total in FILES.items():
        for file in range(total):
            with tf.io.TFRecordWriter(str(place / f"{split}-{file:05}-of-{total:05}")) as writer:
                for number in range(first, first + 2 + (file == 0)):
                    writer.write(example(number, 1 + number % 4))
            first += 2 + (file == 0)
    return place


def prepare(records: Path, out: Path, report: Any = lambda event: None, **options: Any) -> Dict[str, Any]:
    given = {"raw": None, "shards": None, "validation_labels": None, "workers": 2, "shorter_side": SHORTER, **options}
    return build_imagenet.run({"records": str(records), "out": str(out), **given}, report)


def read(out: Path, split: str) -> List[Features]:
    """All features of all records, in the order of the files, as TensorFlow reads them."""
    paths = [str(path) for path in sorted(out.glob(f"{split}-*-of-*"))]
    return [
        {name: feature.SerializeToString() for name, feature in parsed(record).items()}
        for record in tf.data.TFRecordDataset(paths).as_numpy_iterator()
    ]


def parsed(record: bytes) -> Any:
    return tf.train.Example.FromString(record).features.feature


def encoded(features: Features) -> bytes:
    data: bytes = tf.train.Feature.FromString(features["image/encoded"]).bytes_list.value[0]
    return data


def number(features: Features, name: str) -> int:
    value: int = tf.train.Feature.FromString(features[name]).int64_list.value[0]
    return value


def contents(out: Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.name != ".ipulaunch-index.npz"}


@pytest.mark.core
@pytest.mark.parametrize("pixels", [False, True], ids=["jpeg", "pixels"])
def test_every_record_is_there_in_its_file_with_its_image_prepared(
    pixels: bool, published: Path, tmp_path: Path
) -> None:
    out, preparation = tmp_path / "out", Preparation(shorter_side=SHORTER, quality=95, pixels=pixels)
    result = prepare(published, out, pixels=pixels)
    assert (result["images"], result["shards"]) == ({"train": 7, "validation": 5}, FILES)
    for split in FILES:
        before, after = read(published, split), read(out, split)
        assert len(before) == len(after)
        for old, new in zip(before, after):
            rest = {name: value for name, value in old.items() if name not in CHANGED}
            assert {name: value for name, value in new.items() if name not in CHANGED} == {
                **rest,
                "image/preparation": new["image/preparation"],
            }
            expected = preparation.apply(encoded(old))
            assert encoded(new) == expected.encoded
            assert [number(new, f"image/{side}") for side in ("height", "width")] == list(expected.header[1:3])
            is_small = min(number(old, "image/height"), number(old, "image/width")) <= SHORTER
            assert (encoded(new) == encoded(old)) == (is_small and not pixels)
    checked = verify.run({"directory": str(out)}, lambda event: None)
    assert (checked["defects"], checked["records"]) == (0, {"train": 7, "validation": 5})
    for file in range(3):  # each file has the records that it had
        counts = [
            sum(1 for _ in tf.data.TFRecordDataset(str(place / f"train-{file:05}-of-00003")))
            for place in (published, out)
        ]
        assert counts[0] == counts[1]


def test_a_training_knows_the_preparation_the_labels_and_the_boxes(published: Path, tmp_path: Path) -> None:
    prepare(published, tmp_path / "once")
    prepare(tmp_path / "once", tmp_path / "twice", shorter_side=None, pixels=True)

    def source(place: Path, split: str) -> Any:
        return image_records(
            place, split, files=find_files(place, split), seed=0, augment=split == "train", threads=1, side=8
        )

    once = "shorter side 16, JPEG quality 95"
    for split in FILES:
        first, second, third = (source(tmp_path / name, split) for name in ("published", "once", "twice"))
        assert [each.preparation for each in (first, second, third)] == ["", once, f"{once}; pixels"]
        for prepared in (second, third):
            for column in ("labels", "boxes", "first_boxes"):
                assert np.array_equal(
                    getattr(prepared.planner.pictures, column), getattr(first.planner.pictures, column)
                )
            assert (prepared.planner.pictures.widths > 0).all()  # the index takes the record, and training parses none


def test_another_number_of_files_keeps_the_order(published: Path, tmp_path: Path) -> None:
    result = prepare(published, tmp_path / "out", shards=2, shorter_side=None)
    assert result["shards"] == {"train": 2, "validation": 1}
    for split in FILES:
        assert [encoded(each) for each in read(tmp_path / "out", split)] == [
            encoded(each) for each in read(published, split)
        ]


def test_files_packed_with_gzip_are_read(published: Path, tmp_path: Path) -> None:
    prepare(published, tmp_path / "plain")
    for path in published.glob("*-of-*"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    prepare(published, tmp_path / "packed", workers=1)
    plain, packed = contents(tmp_path / "plain"), contents(tmp_path / "packed")
    assert {name: data for name, data in plain.items() if "-of-" in name} == {
        name: data for name, data in packed.items() if "-of-" in name
    }


def test_an_interrupted_preparation_goes_on_and_comes_to_the_same(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipulaunch.data_pipeline.parallel._REPORT_INTERVAL_S", 0.0)
    prepare(published, tmp_path / "whole")
    out = tmp_path / "out"

    def interrupt(event: Dict[str, Any]) -> None:
        if any(out.glob("train-*")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(published, out, interrupt, workers=1)
    left = {path.name: path.stat().st_mtime_ns for path in out.glob("*-of-*")}
    assert 0 < len(left) < 5
    assert prepare(published, out, workers=1)["kept"] == len(left)
    assert contents(out) == contents(tmp_path / "whole")
    assert {name: (out / name).stat().st_mtime_ns for name in left} == left
    with pytest.raises(UsageError, match="begun with other quality"):
        prepare(published, out, quality=80)
    (published / "validation-00001-of-00002").write_bytes(b"")
    with pytest.raises(UsageError, match=r"begun with other images \(there are 10 now, 2 fewer\)"):
        prepare(published, out)


def records_of(path: Path) -> List[bytes]:
    return [bytes(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]


def offset(path: Path, record: int) -> int:
    return sum(HEADER + len(data) + FOOTER for data in records_of(path)[:record])


def flip_a_bit(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def changed(record: bytes, name: str, value: Any) -> bytes:
    features = tf.train.Example.FromString(record)
    feature = tf.train.Example.FromString(tf_example({name: value})).features.feature[name]
    features.features.feature[name].CopyFrom(feature)
    data: bytes = features.SerializeToString()
    return data


def without(record: bytes, name: str) -> bytes:
    features = tf.train.Example.FromString(record)
    del features.features.feature[name]
    data: bytes = features.SerializeToString()
    return data


def half_an_image(record: bytes) -> bytes:
    whole: bytes = parsed(record)["image/encoded"].bytes_list.value[0]
    return changed(record, "image/encoded", whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (half_an_image, "the image cannot be decoded: jpeg"),
        (lambda record: changed(record, "image/encoded", b"text"), "the image cannot be decoded: neither a JPEG nor"),
        (
            lambda record: changed(record, "image/encoded", b"P6\n1 1\n255\nabc"),
            "the image cannot be decoded: plain pixels already; prepare the set that they were made of",
        ),
        (lambda record: without(record, "image/encoded"), "there is no feature image/encoded"),
        (lambda record: changed(record, "image/class/label", [0]), r"image/class/label is \[0\], expected"),
        (lambda record: without(record, "image/class/label"), "there is no feature image/class/label"),
        (lambda record: b"\xff\xff\xff", "not a tf.train.Example: "),
    ],
    ids=["half", "text", "pixels", "no image", "label 0", "no label", "no example"],
)
def test_a_damaged_record_is_named_or_left_out(spoil: Any, said: str, published: Path, tmp_path: Path) -> None:
    path = published / "train-00001-of-00003"
    good = records_of(path)
    write_records(path, [good[0], spoil(good[1])])
    place = f"{path}, record 1 at byte {offset(path, 1)}: "
    with pytest.raises(DataError, match=said) as caught:
        prepare(published, tmp_path / "out")
    assert caught.value.message.startswith(place) and "--bad-records skip" in caught.value.hint
    result = prepare(published, tmp_path / "out", bad_records="skip")
    assert result["images"] == {"train": 6, "validation": 5}
    assert len(result["left_out"]) == 1 and result["left_out"][0].startswith(place)
    assert len(read(tmp_path / "out", "train")) == 6
    again = prepare(published, tmp_path / "out", bad_records="skip")
    assert (again["kept"], again["left_out"], again["images"]) == (5, result["left_out"], result["images"])


def test_a_wrong_checksum_is_named_or_left_out(published: Path, tmp_path: Path) -> None:
    path = published / "validation-00000-of-00002"
    start, data = offset(path, 1), path.read_bytes()
    spot = start + HEADER + 50
    path.write_bytes(data[:spot] + flip_a_bit(data[spot : spot + 1]) + data[spot + 1 :])
    with pytest.raises(DataError) as caught:
        prepare(published, tmp_path / "out")
    assert caught.value.message == f"{path}, record 1 at byte {start}: the data has the wrong checksum"
    result = prepare(published, tmp_path / "out", bad_records="skip")
    assert result["images"] == {"train": 7, "validation": 4}


def test_a_file_without_a_good_image_is_not_left_out(published: Path, tmp_path: Path) -> None:
    path = published / "train-00001-of-00003"
    write_records(path, [half_an_image(record) for record in records_of(path)])
    with pytest.raises(DataError, match=f"none of the 2 images of train-00001-of-00003 can be used; the first: {path}"):
        prepare(published, tmp_path / "out", bad_records="skip")
    assert not (tmp_path / "out" / path.name).exists()


def test_a_file_that_was_cut_off_is_named_or_used_up_to_there(published: Path, tmp_path: Path) -> None:
    path = published / "train-00000-of-00003"
    start = offset(path, 2)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError) as caught:
        prepare(published, tmp_path / "out")
    place = f"{path}, record 2 at byte {start}: "
    assert caught.value.message == f"{place}the last 5 bytes are missing"
    result = prepare(published, tmp_path / "out", bad_records="skip")
    assert (result["images"]["train"], result["left_out"]) == (6, [])
    assert result["damaged_files"] == [f"{place}the last 5 bytes are missing"]


def test_a_missing_file_is_named(published: Path, tmp_path: Path) -> None:
    (published / "train-00001-of-00003").unlink()
    with pytest.raises(DataError, match="1 train file of 3 missing: train-00001-of-00003"):
        prepare(published, tmp_path / "out", bad_records="skip")
    assert not (tmp_path / "out").exists()


def test_a_set_with_one_split_is_prepared_alone(published: Path, tmp_path: Path) -> None:
    for path in published.glob("train-*"):
        path.unlink()
    result = prepare(published, tmp_path / "out")
    assert (result["images"], result["shards"], result["classes"]) == ({"validation": 5}, {"validation": 2}, None)


def test_the_estimate_comes_before_the_work(published: Path, tmp_path: Path) -> None:
    notes: List[str] = []

    def report(event: Dict[str, Any]) -> None:
        if event["event"] == "note":
            assert not any((tmp_path / "out").glob("*-of-*"))
            notes.append(event["text"])

    result = prepare(published, tmp_path / "out", report)
    assert len(notes) == 1 and notes[0].startswith("12 images in 5 files: about ")
    said = float(notes[0].split("about ")[1].split(" GB")[0]) * 1e9
    assert 0.99 < result["bytes"] / said < 1.01  # all of them were tried


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"raw": "raw"}, "a build needs either --raw or --records"),
        ({"validation_labels": "labels.txt"}, "--validation-labels is for --raw"),
        ({"shorter_side": None}, "nothing would change"),
    ],
    ids=["both", "labels", "nothing"],
)
def test_options_that_do_not_go_together(options: Dict[str, Any], said: str, published: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        prepare(published, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
