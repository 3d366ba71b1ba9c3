"""What the index keeps of ImageNet's records, beside the records themselves, parsed as a whole."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.data_pipeline.records import index as index_module
from ipulaunch.data_pipeline.records.archive import read_arrays
from ipulaunch.data_pipeline.records.index import Index, open_index
from ipulaunch.data_pipeline.sources.image_header import height_place
from ipulaunch.data_pipeline.sources.imagenet_contents import PictureContents, pictures
from ipulaunch.data_pipeline.sources.imagenet_samples import SampleReader
from ipulaunch.data_pipeline.tools.new_set import encode_example

SIDES = ("ymin", "xmin", "ymax", "xmax")
KEPT = ".ipulaunch-index.npz"


def jpeg(height: int, width: int, **options: Any) -> bytes:
    pixels = np.random.RandomState(height).randint(0, 256, (height, width, 3)).astype(np.uint8)
    encoded: bytes = tf.io.encode_jpeg(pixels, **options).numpy()
    return encoded


def with_preview(encoded: bytes, size: int) -> bytes:
    """A JPEG with segments of a camera before its header."""
    segment = b"\xff\xe1" + (60002).to_bytes(2, "big") + bytes(60000)
    return encoded[:2] + segment * (size // 60000) + encoded[2:]


def example(encoded: bytes, label: int, boxes: Sequence[Sequence[float]] = (), **more: Any) -> bytes:
    columns = {f"image/object/bbox/{side}": np.array(values, np.float32) for side, values in zip(SIDES, zip(*boxes))}
    return encode_example({**more, "image/encoded": encoded, "image/class/label": [label], **columns})


def with_names(encoded: bytes, label: int) -> bytes:
    """A record with fields that nobody wants, before and after its image, as published ones have."""
    before = {f"image/{name}": b"some text" * 20 for name in ("filename", "colorspace", "class/text")}
    return encode_example({**before, "image/encoded": encoded, "image/class/label": [label], "image/height": [7]})


BOXES = [(0.1, 0.2, 0.5, 0.75), (0.0, 0.0, 1.0, 1.0), (0.25, 0.5, 0.375, 0.625)]
EVEN = [
    example(jpeg(20, 30), 1),
    example(jpeg(375, 500, quality=95), 1000, BOXES),
    with_names(jpeg(64, 48), 300),
    example(with_preview(jpeg(21, 31), 60000), 2, BOXES[:1]),
    example(jpeg(22, 32, progressive=True), 3),
    example(tf.io.encode_jpeg(np.zeros((23, 33, 1), np.uint8)).numpy(), 4),
    example(jpeg(300, 200, quality=100, chroma_downsampling=False), 5, BOXES[1:]),
]
ODD = {
    "a PNG": example(tf.io.encode_png(np.zeros((9, 9, 3), np.uint8)).numpy(), 1),
    "not an image": example(b"GIF89a......", 1),
    "cut off": example(jpeg(40, 40)[:-300], 1),
    "no Example": b"\xff\xff",
    "no image": encode_example({"image/class/label": [1]}),
    "a preview beyond what is looked at": example(with_preview(jpeg(20, 30), 240000), 1),
}
Indexed = Callable[..., Index]


@pytest.fixture
def indexed(write: Any, tmp_path: Path) -> Indexed:
    """The index of files with these records."""

    def make(*files: Sequence[bytes], packed: bool = False) -> Index:
        paths = [write(f"train-{number}", records, packed=packed) for number, records in enumerate(files)]
        return open_index(paths, threads=1, contents=PictureContents())

    return make


def kept(index: Index) -> List[Dict[str, Any]]:
    """What is kept of each record, with its image where the record has it."""
    found, columns = [], pictures(index.contents)
    reader = SampleReader(index, classes=1000).records
    for record in range(index.records):
        start, size = int(columns.starts[record]), int(columns.sizes[record])
        boxes = columns.boxes[columns.first_boxes[record] : columns.first_boxes[record + 1]]
        found.append(
            {
                "encoded": reader.read(record)[start : start + size],
                "label": int(columns.labels[record]),
                "size": (int(columns.heights[record]), int(columns.widths[record])),
                "boxes": boxes.tolist(),
            }
        )
    return found


def parsed(index: Index) -> List[Dict[str, Any]]:
    """The same from whole records."""
    samples = [SampleReader(index, classes=1000).read(record) for record in range(index.records)]
    return [
        {
            "encoded": sample.encoded,
            "label": sample.label,
            "size": (sample.header.height, sample.header.width),
            "boxes": sample.boxes.tolist(),
        }
        for sample in samples
    ]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_what_is_kept_is_what_the_records_say(packed: bool, indexed: Indexed) -> None:
    index = indexed(EVEN, EVEN[::-1], packed=packed)
    assert kept(index) == parsed(index)


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_odd_records_have_no_width_and_leave_the_others_alone(odd: bytes, indexed: Indexed) -> None:
    index = indexed([EVEN[1], odd, EVEN[1]])
    assert (pictures(index.contents).widths == 0).tolist() == [False, True, False]
    first, _, last = kept(index)
    assert first == last == parsed(indexed([EVEN[1]]))[0]


def test_at_most_64_bytes_are_kept_of_a_record(indexed: Indexed) -> None:
    index = indexed(EVEN * 20)
    columns = pictures(index.contents)
    by_record = [index.offsets, index.lengths, *columns[:-1]]
    assert sum(column.nbytes for column in by_record) <= 40 * index.records + 4
    assert columns.boxes.nbytes == 16 * sum(len(each["boxes"]) for each in kept(index))


def test_an_index_without_contents_is_completed_and_stays_readable(
    indexed: Indexed, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("train-0", EVEN)
    open_index([path], threads=1)
    with (tmp_path / KEPT).open("rb") as file:
        arrays = read_arrays(file, lambda name: True, 1 << 20)
    assert not any(name.startswith("content") for name in arrays)
    np.savez(tmp_path / KEPT, **{**arrays, "format": np.array(1)})  # as version 0.1.0 wrote it
    index = open_index([path], threads=1, contents=PictureContents())
    assert kept(index) == parsed(index)
    monkeypatch.setattr(index_module, "scan", None)  # nothing is looked at again
    assert kept(open_index([path], threads=1, contents=PictureContents())) == kept(index)
    assert open_index([path], threads=1).records == len(EVEN)


HARM: Dict[str, Callable[[Dict[str, np.ndarray]], Any]] = {
    "an image beyond its record": lambda arrays: arrays["contents/image_sizes"].__iadd__(10**6),
    "an image before its record": lambda arrays: arrays["contents/image_starts"].__isub__(10**6),
    "no height": lambda arrays: arrays["contents/image_heights"].__imul__(0),
    "a height beyond the image": lambda arrays: arrays["contents/image_height_places"].__iadd__(10**8),
    "objects without boxes": lambda arrays: arrays["contents/image_objects"].__iadd__(1),
    "fewer boxes": lambda arrays: arrays.update({"contents/image_boxes": arrays["contents/image_boxes"][4:]}),
    "another kind of number": lambda arrays: arrays.update(
        {"contents/image_starts": arrays["contents/image_starts"].astype(np.float32)}
    ),
    "counts below zero": lambda arrays: arrays["content_counts/image_sizes"].__isub__(50),
    "no counts": lambda arrays: arrays.pop("content_counts/image_sizes"),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=list(HARM))
def test_contents_that_cannot_be_true_are_found_again(harm: Any, indexed: Indexed, tmp_path: Path) -> None:
    index = indexed(EVEN)
    with (tmp_path / KEPT).open("rb") as file:
        arrays = {name: values.copy() for name, values in read_arrays(file, lambda name: True, 1 << 20).items()}
    harm(arrays)
    np.savez(tmp_path / KEPT, **arrays)
    again = open_index([Path(index.paths[0])], threads=1, contents=PictureContents())
    assert kept(again) == parsed(again)


def test_a_copied_index_serves_the_copied_files(
    indexed: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = indexed(EVEN, EVEN)
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    monkeypatch.setattr(index_module, "scan", None)
    copies = [tmp_path.with_name("copy") / path.name for path in index.paths]
    assert kept(open_index(copies, threads=1, contents=PictureContents())) == kept(index)


@pytest.mark.parametrize(
    ("encoded", "is_cut"),
    [(jpeg(40, 50), True), (jpeg(40, 50, progressive=True), False), (with_preview(jpeg(40, 50), 60000), True)],
    ids=["sequential", "progressive", "with a preview"],
)
def test_only_the_height_of_sequential_images_can_be_changed(encoded: bytes, is_cut: bool) -> None:
    place = height_place(encoded)
    assert (place > 0) is is_cut
    if is_cut:
        assert int.from_bytes(encoded[place : place + 2], "big") == 40
        assert height_place(encoded[: place + 10]) == 0  # the scan is not there any more
