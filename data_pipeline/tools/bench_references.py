"""The pipelines to compare ours with: conventional ones, and the limits of the machine."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.parallel import in_order
from ipulaunch.data_pipeline.records.example import NotAnExample, find_features
from ipulaunch.data_pipeline.records.index import Index
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.sources.augmentation import Draws, random_window
from ipulaunch.data_pipeline.sources.image_decoding import SIDE
from ipulaunch.data_pipeline.sources.image_header import NotAnImage, read_header
from ipulaunch.data_pipeline.sources.imagenet_samples import marked_objects

if TYPE_CHECKING:
    from ipulaunch.data_pipeline.tools.bench import Task

MICRO_SIZES = {"cosmoflow": 1, "imagenet": 16}
_LIMIT_IMAGES = 256  # held in memory
_NO_CONVERSION = tf.autograph.experimental.do_not_convert


def named(pipeline: Callable[[], Iterator[int]], directory: Path) -> Iterator[int]:
    """The pipeline; it raises a DataError for a set that it cannot read. Only our own pipeline says where."""
    try:
        yield from pipeline()
    except (tf.errors.OpError, NotAnExample, NotAnImage) as error:
        hint = f"ipulaunch data verify {directory} says where"
        raise DataError(f"{directory} cannot be read: {str(error).splitlines()[0]}", hint=hint) from error


def _records(index: Index, task: Task) -> tf.data.Dataset:
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

    records = _records(index, task)
    for inputs, _ in records.map(_NO_CONVERSION(parse), 4).batch(1, drop_remainder=True).prefetch(4):
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
        crop = tf.io.decode_and_crop_jpeg(encoded, tf.concat([begin[:2], size[:2]], 0), 3)
        image = tf.image.resize(tf.image.random_flip_left_right(crop), (SIDE, SIDE))
        return tf.cast(image, tf.uint8), tf.cast(example["image/class/label"], tf.int32) - 1

    records = _records(index, task)
    images = records.map(_NO_CONVERSION(parse), 48).batch(MICRO_SIZES["imagenet"], drop_remainder=True)
    for inputs, _ in images.prefetch(4):
        yield int(inputs.shape[0])


def decoding_alone(index: Index, threads: int) -> Iterator[int]:
    """Crops of images in memory, decoded and thrown away."""
    reader, encoded, windows = RecordReader(index), [], []
    for record in range(min(_LIMIT_IMAGES, index.records)):
        data = reader.read(record)
        features = find_features(data)
        if "image/encoded" not in features:
            raise NotAnExample("there is no feature image/encoded")
        span = features["image/encoded"]
        header = read_header(data[span.start : span.stop])
        if header.format == "JPEG":
            encoded.append(data[span.start : span.stop])
            objects = marked_objects(data, features)
            windows.append(random_window(Draws(0, 0, record), header.height, header.width, objects))

    def decode(image: Any, window: Any) -> Any:
        return tf.io.decode_and_crop_jpeg(image, window, 3)[0, 0]

    images = tf.data.Dataset.from_tensor_slices((np.array(encoded, object), np.array(windows, np.int32))).repeat()
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    size = math.gcd(MICRO_SIZES["imagenet"], _LIMIT_IMAGES)
    for pixels in images.map(_NO_CONVERSION(decode), threads).batch(size).prefetch(4).with_options(options):
        yield int(pixels.shape[0])
