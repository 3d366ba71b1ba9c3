"""The pipelines to compare ours with: conventional ones, and the limits of the machine."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.parallel import in_order
from ipulaunch.data_pipeline.records.index import Index
from ipulaunch.data_pipeline.sources.image_decoding import SIDE
from ipulaunch.data_pipeline.sources.imagenet import ImagenetRecords
from ipulaunch.data_pipeline.sources.imagenet_plan import PlannedSample
from ipulaunch.data_pipeline.sources.imagenet_samples import Workspace
from ipulaunch.data_pipeline.sources.source import unconverted

if TYPE_CHECKING:
    from ipulaunch.data_pipeline.tools.bench import Task

MICRO_SIZES = {"cosmoflow": 1, "imagenet": 16}
_LIMIT_IMAGES = 256  # held in memory


def named(pipeline: Callable[[], Iterator[int]], directory: Path) -> Iterator[int]:
    """The pipeline; it raises a DataError for a set that it cannot read. Only our own pipeline says where."""
    try:
        yield from pipeline()
    except tf.errors.OpError as error:
        hint = f"ipulaunch data verify {directory} says where"
        raise DataError(f"{directory} cannot be read: {str(error).splitlines()[0]}", hint=hint) from error


def usual_records(index: Index, task: Task) -> tf.data.Dataset:
    """An endless stream of an instance's records, shared by file as usual; of all records if files are few."""
    files = range(len(index.paths))
    mine = files[task.instance :: task.instances] or files
    paths = [str(index.paths[file]) for file in mine]
    kinds = ["GZIP" if index.packed[file] else "" for file in mine]
    # What TFRecordDataset does with a list of files; that needs all of them packed, or none.
    return tf.data.Dataset.from_tensor_slices((paths, kinds)).flat_map(tf.data.TFRecordDataset).repeat()


def volumes_as_usual(index: Index, task: Task, side: int) -> Iterator[int]:
    shape = (side, side, side, 4)
    features = {"x": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([4], tf.float32)}

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        volume = tf.cast(tf.reshape(tf.io.decode_raw(example["x"], tf.int16), shape), tf.float32)
        return volume / tf.reduce_mean(volume), example["y"]

    records = usual_records(index, task)
    for inputs, _ in records.map(unconverted(parse), 4).batch(1, drop_remainder=True).prefetch(4):
        yield int(inputs.shape[0])


def plain_reads(index: Index, threads: int) -> Iterator[int]:
    """Whole files, read into reused memory."""
    firsts = index.firsts
    sizes = [path.stat().st_size for path in index.paths]
    buffers = itertools.cycle([bytearray(max(sizes)) for _ in range(5 * threads)])  # one for each read under way

    def read(item: Tuple[int, bytearray]) -> int:
        file, buffer = item
        with index.paths[file].open("rb", buffering=0) as stream:
            stream.readinto(memoryview(buffer)[: sizes[file]])
        return int(firsts[file + 1] - firsts[file])

    yield from in_order(read, zip(itertools.cycle(range(len(sizes))), buffers), threads)


def images_as_usual(index: Index, task: Task) -> Iterator[int]:
    for inputs, _ in usual_images(index, task, _cropped_and_scaled):
        yield int(inputs.shape[0])


def _cropped_and_scaled(encoded: Any, window: Any) -> Any:
    crop = tf.io.decode_and_crop_jpeg(encoded, window, 3)
    return tf.cast(tf.image.resize(tf.image.random_flip_left_right(crop), (SIDE, SIDE)), tf.uint8)


def usual_images(index: Index, task: Task, make: Callable[[Any, Any], Any], parallel: int = 48) -> tf.data.Dataset:
    """(images, labels) of a conventional pipeline, endlessly; `make` gets an encoded image and its crop."""
    sides = ("ymin", "xmin", "ymax", "xmax")
    features: Dict[str, Any] = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        **{f"image/object/bbox/{side}": tf.io.VarLenFeature(tf.float32) for side in sides},
    }

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        encoded = example["image/encoded"]
        columns = [tf.sparse.to_dense(example[f"image/object/bbox/{side}"]) for side in sides]
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(encoded),
            tf.expand_dims(tf.stack(columns, axis=1), 0),
            min_object_covered=0.1,
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            max_attempts=100,
            use_image_if_no_bounding_boxes=True,
        )
        image = make(encoded, tf.concat([begin[:2], size[:2]], 0))
        return image, tf.cast(example["image/class/label"], tf.int32) - 1

    records = usual_records(index, task)
    images = records.map(unconverted(parse), parallel).batch(MICRO_SIZES["imagenet"], drop_remainder=True)
    return images.prefetch(4)


def decoding_alone(source: ImagenetRecords, threads: int) -> Iterator[int]:
    """Crops of images in memory, decoded as ours are and thrown away."""
    epochs, records = np.zeros(1, np.int64), np.arange(min(_LIMIT_IMAGES, source.samples))[None]
    plan = [PlannedSample(*row) for row in source.planner.plan(epochs, records)[0].tolist()]
    even = [sample for sample in plan if not source.reader.is_odd(sample)]
    if not even:
        raise DataError(f"none of the first {len(plan)} records of {source.index.paths[0].parent} has a sound JPEG")
    encoded = [source.reader.encoded(sample, Workspace()) for sample in even]
    images, size = source.training, MICRO_SIZES["imagenet"]
    assert images is not None

    def decode(start: int) -> int:
        workspace = Workspace()
        for number in (each % len(even) for each in range(start, start + size)):
            images.crop(even[number], encoded[number], workspace)
        return size

    yield from in_order(decode, itertools.count(step=size), threads)
