from __future__ import annotations

import gzip
import os
import shutil
import struct
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, PlanError
from ipulaunch.data_pipeline.records.tfrecord import scan
from ipulaunch.data_pipeline.sources.image_header import ImageHeader, NotAnImage, read_header
from ipulaunch.data_pipeline.tools import index, verify
from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records

Events = List[Dict[str, Any]]


def check(directory: Path, events: Events, **options: Any) -> Dict[str, Any]:
    return verify.run({"directory": str(directory), **options}, events.append)


def defects(events: Events) -> List[Any]:
    found = [event for event in events if event["event"] == "defect"]
    return [(Path(event["file"]).name, event["record"], event["offset"], event["message"]) for event in found]


def test_a_good_set_has_no_defects(volumes: Path, images: Path, events: Events) -> None:
    result = check(volumes, events)
    assert (result["kind"], result["form"], result["defects"]) == ("cosmoflow", "4 x 4 x 4 x 4", 0)
    assert (result["records"], result["files"]) == ({"train": 5, "validation": 2}, {"train": 3, "validation": 1})
    result = check(images, events)
    assert (result["kind"], result["records"], result["notes"]) == ("imagenet", {"train": 6, "validation": 2}, [])
    assert defects(events) == []


def test_a_pipe_is_a_defect_and_not_waited_for(volumes: Path, events: Events) -> None:
    os.mkfifo(volumes / "train" / "z.tfrecord")
    check(volumes, events)
    assert defects(events) == [("z.tfrecord", None, None, "it is not a file")]


def test_a_file_that_was_emptied_is_noted(volumes: Path, events: Events) -> None:
    emptied = sorted((volumes / "train").glob("*.tfrecord"))[0]
    emptied.write_bytes(b"")
    (note,) = check(volumes, events)["notes"]
    assert (note["message"], note["records"]) == ("no record in it", 1)
    assert note["places"] == [{"file": str(emptied), "record": None, "offset": None}]
    assert defects(events) == []


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_wrong_byte_is_found_and_the_rest_is_still_read(packed: bool, tmp_path: Path, events: Events) -> None:
    path = tmp_path / "train" / "a.tfrecord"
    path.parent.mkdir()
    good = encode_example({"x": bytes(64), "y": np.zeros(4)})
    bad = encode_example({"x": bytes(64), "y": np.zeros(3)})
    write_records(path, [good, good, good, bad])
    data = bytearray(path.read_bytes())
    second = 12 + len(good) + 4
    data[second + 12 + 30] ^= 1
    path.write_bytes(gzip.compress(bytes(data)) if packed else bytes(data))
    result = check(tmp_path, events)
    assert (result["records"], result["defects"]) == ({"train": 4}, 2)
    assert defects(events) == [
        ("a.tfrecord", 1, second, "the data has the wrong checksum"),
        ("a.tfrecord", 3, 3 * second, "y has 3 floats, expected 4"),
    ]


def test_a_damaged_header_ends_its_file_only(volumes: Path, events: Events) -> None:
    path = volumes / "train" / "part-00000.tfrecord"
    data = bytearray(path.read_bytes())
    second = len(data) // 2
    data[second] ^= 1
    path.write_bytes(data)
    assert check(volumes, events)["records"] == {"train": 4, "validation": 2}
    ((name, record, offset, message),) = defects(events)
    assert (name, record, offset) == ("part-00000.tfrecord", 1, second)
    assert message.startswith("the length has the wrong checksum")


@pytest.mark.parametrize(
    ("left", "message"),
    [(-1, "the last 1 bytes of the file are missing"), (5, "the file ends inside a record's header")],
    ids=["data", "header"],
)
def test_a_file_that_was_cut_off(left: int, message: str, volumes: Path, events: Events) -> None:
    path = volumes / "validation" / "part-00000.tfrecord"
    path.write_bytes(path.read_bytes()[:left])
    check(volumes, events)
    assert [found[3] for found in defects(events)] == [message]


def test_a_packed_file_that_was_cut_off(volumes: Path, events: Events) -> None:
    path = volumes / "train" / "part-00001.tfrecord"
    path.write_bytes(gzip.compress(path.read_bytes())[:-100])
    check(volumes, events)
    (found,) = defects(events)
    assert (found[1], "gzip cannot unpack" in found[3]) == (1, True)


def test_records_of_another_size_are_defects(volumes: Path, events: Events) -> None:
    other = encode_example({"x": bytes(8 * 27), "y": np.zeros(4)})
    write_records(volumes / "train" / "part-00009.tfrecord", [other])
    check(volumes, events)
    assert defects(events) == [("part-00009.tfrecord", 0, 0, "x is 3 x 3 x 3 x 4, elsewhere 4 x 4 x 4 x 4")]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"y": np.zeros(4)}, "there is no feature x"),
        ({"x": bytes(64)}, "there is no feature y"),
        ({"x": [1], "y": np.zeros(4)}, "x holds ints, expected bytes"),
        ({"x": bytes(64), "y": [1]}, "y holds ints, expected 4 floats"),
        ({"x": bytes(60), "y": np.zeros(4)}, "x has 60 bytes, which is not an int16 volume [S, S, S, 4]"),
        ({"x": bytes(64), "y": np.array([0, 0, 0, np.nan])}, "y is [0.0, 0.0, 0.0, nan], expected finite numbers"),
    ],
)
def test_wrong_fields_of_volumes(features: Any, message: str, tmp_path: Path, events: Events) -> None:
    (tmp_path / "train").mkdir()
    write_records(tmp_path / "train" / "a.tfrecord", [encode_example(features)])
    check(tmp_path, events)
    assert defects(events) == [("a.tfrecord", 0, 0, message)]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"image/encoded": None}, "there is no feature image/encoded"),
        ({"image/encoded": b"GIF89a"}, "image/encoded is neither a JPEG nor a PNG: it starts with 47494638"),
        ({"image/class/label": [0]}, "image/class/label is [0], expected one number from 1 to 1000"),
        ({"image/class/label": [1001]}, "image/class/label is [1001], expected one number from 1 to 1000"),
        ({"image/class/label": "1"}, "image/class/label holds bytes, expected a whole number"),
        ({"image/height": [7]}, "image/height says [7], the image 6"),
        ({"image/object/bbox/xmin": np.array([0.5])}, "boxes need floats in each of"),
        ({"box": (0.5, 0.4, 0, 1)}, "a box does not lie inside its image"),
        ({"box": (0, 1.5, 0, 1)}, "a box does not lie inside its image"),
    ],
)
def test_wrong_fields_of_images(
    features: Dict[str, Any], message: str, jpeg: Callable[..., bytes], tmp_path: Path, events: Events
) -> None:
    given = {"image/encoded": jpeg(6, 8), "image/class/label": [1], "image/height": [6], "image/width": [8], **features}
    for side, value in zip(("xmin", "xmax", "ymin", "ymax"), given.pop("box", ())):
        given[f"image/object/bbox/{side}"] = np.array([value])
    record = encode_example({name: value for name, value in given.items() if value is not None})
    write_records(tmp_path / "train-00000-of-00001", [record])
    check(tmp_path, events)
    ((name, number, offset, found),) = defects(events)
    assert (name, number, offset, found[: len(message)]) == ("train-00000-of-00001", 0, 0, message)


def test_odd_images_are_noted_and_no_defects(
    jpeg: Callable[..., bytes], cmyk_jpeg: bytes, tmp_path: Path, events: Events
) -> None:
    png = bytes.fromhex(
        "89504e470d0a1a0a 0000000d 49484452 00000008 00000006 08 06 000000 00000000 00000000 49454e44 ae426082"
    )
    encoded = [jpeg(), jpeg(channels=1), png, cmyk_jpeg]
    records = [encode_example({"image/encoded": data, "image/class/label": [1000]}) for data in encoded]
    write_records(tmp_path / "train-00000-of-00001", records)
    notes = [note for note in check(tmp_path, events)["notes"] if note["places"]]
    assert [(note["message"], note["places"][0]["record"]) for note in notes] == [
        ("CMYK", 3),
        ("PNG, not JPEG", 2),
        ("grey", 1),
    ]
    assert defects(events) == []


def test_files_that_the_names_promise_are_missed(images: Path, events: Events) -> None:
    (images / "train-00001-of-00002").unlink()
    check(images, events)
    assert defects(events) == [("train-00001-of-00002", None, None, "the file is missing")]


def test_files_of_another_set_are_defects(images: Path, events: Events) -> None:
    shutil.copy(images / "train-00000-of-00002", images / "train-00000-of-00001")
    assert check(images, events)["records"] == {"train": 6, "validation": 2}
    message = "it belongs to another set than the other train files"
    assert defects(events) == [("train-00000-of-00001", None, None, message)]


@pytest.mark.parametrize(("split", "option"), [("train", "--no-training"), ("validation", "--no-validation")])
def test_a_set_without_one_of_its_splits_is_noted(split: str, option: str, volumes: Path, events: Events) -> None:
    shutil.rmtree(volumes / split)
    result = check(volumes, events)
    message = f"there are no {split} files: a run on this set needs {option}"
    assert result["notes"] == [{"message": message, "records": 0, "places": []}]
    assert result["defects"] == 0


def test_counts_for_a_plan(volumes: Path, events: Events) -> None:
    result = check(volumes, events, instances=2, replicas=2, micro_batch_size=1)
    assert result["shards"] == {
        "train": {"steps": 2, "instances": 2, "per_instance": 2, "left_out": 1},
        "validation": {"steps": 1, "instances": 2, "per_instance": 1, "padded": 0},
    }
    result = check(volumes, events, replicas=1, gradient_accumulation_count=2)
    assert result["shards"] == {
        "train": {"steps": 4, "instances": 1, "per_instance": 4, "left_out": 1},
        "validation": {"steps": 2, "instances": 1, "per_instance": 2, "padded": 0},
    }
    assert check(volumes, events, gradient_accumulation_count=3)["shards"]["train"]["left_out"] == 2
    with pytest.raises(PlanError, match="3 replicas are not divided evenly among 2 instances"):
        check(volumes, events, instances=2, replicas=3)


def test_a_directory_without_records_is_refused(tmp_path: Path, events: Events) -> None:
    with pytest.raises(DataError, match="no record files"):
        check(tmp_path, events)
    with pytest.raises(DataError, match="not a directory"):
        check(tmp_path / "missing", events)


@pytest.mark.parametrize("cut", range(2, 20))
def test_a_header_that_was_cut_off(cut: int, jpeg: Callable[..., bytes]) -> None:
    with pytest.raises(NotAnImage):
        read_header(jpeg()[:cut])


def test_headers(jpeg: Callable[..., bytes], cmyk_jpeg: bytes) -> None:
    assert read_header(jpeg(6, 8, 3)) == ImageHeader("JPEG", 6, 8, 3)
    assert read_header(cmyk_jpeg) == ImageHeader("JPEG", 8, 8, 4)


PIXELS = np.random.RandomState(0).randint(0, 256, (24, 32, 3)).astype(np.uint8)


def with_preview(jpeg: bytes) -> bytes:
    """A JPEG with a small one in its header, as cameras write it."""
    preview = tf.io.encode_jpeg(PIXELS[:8, :8]).numpy()
    data: bytes = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(preview) + 2) + preview + jpeg[2:]
    return data


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        pytest.param("JPEG", lambda: with_preview(tf.io.encode_jpeg(PIXELS).numpy()), id="JPEG"),
        pytest.param("JPEG", lambda: tf.io.encode_jpeg(PIXELS, progressive=True).numpy(), id="progressive JPEG"),
        pytest.param("PNG", lambda: tf.io.encode_png(PIXELS).numpy(), id="PNG"),
    ],
)
def test_images_that_were_cut_off_are_those_that_cannot_be_decoded(
    kind: str, make: Callable[[], bytes], tmp_path: Path, events: Events
) -> None:
    whole = make()
    sound = [whole, whole + bytes(512), whole + b"\nwhat a camera appends"]
    cut = [whole[:-left_out] for left_out in (1, 2, 12, 600)]
    for data in sound:
        tf.io.decode_image(data)
    for data in cut:
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.io.decode_image(data)
    encoded = [*sound, *cut]
    records = [encode_example({"image/encoded": data, "image/class/label": [1]}) for data in encoded]
    write_records(tmp_path / "train-00000-of-00001", records)
    check(tmp_path, events)
    offsets = np.cumsum([0, *(len(record) + 16 for record in records)]).tolist()
    message = f"image/encoded is a {kind} that was cut off: its end mark is missing"
    assert defects(events) == [("train-00000-of-00001", n, offsets[n], message) for n in range(3, 7)]


def test_index_says_what_there_is_and_where_it_is_kept(volumes: Path, images: Path, events: Events) -> None:
    result = index.run({"directory": str(volumes)}, events.append)
    place = volumes / "train" / ".ipulaunch-index.npz"
    assert result["splits"]["train"] == {"files": 3, "records": 5, "index": str(place)}
    assert place.exists()
    assert events[-1] == {"event": "progress", "what": "validation files", "done": 1, "total": 1}
    splits = index.run({"directory": str(images)}, events.append)["splits"]
    assert {split: about["records"] for split, about in splits.items()} == {"train": 6, "validation": 2}
    assert len(scan(images / "train-00000-of-00002").offsets) == 3
