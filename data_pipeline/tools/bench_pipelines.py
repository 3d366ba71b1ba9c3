"""The pipelines that are measured beside each other. Each is an endless iterator over the sizes of its batches."""

from __future__ import annotations

import functools
import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.data_pipeline.order import Shuffle
from ipulaunch.data_pipeline.parallel import in_order
from ipulaunch.data_pipeline.records.example import NotAnExample, find_features
from ipulaunch.data_pipeline.records.index import Index, open_index
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.sources import cosmoflow, imagenet
from ipulaunch.data_pipeline.sources.augmentation import Draws, random_window
from ipulaunch.data_pipeline.sources.image_header import NotAnImage, read_header
from ipulaunch.data_pipeline.sources.source import Source, data_errors
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology import Batch

if TYPE_CHECKING:
    from ipulaunch.data_pipeline.tools.bench import Task

_ENDLESS = range(10**9)  # weight updates, for a measurement
_MICRO_SIZES = {"cosmoflow": 1, "imagenet": 16}
_LIMIT_IMAGES = 256  # held in memory
_NO_CONVERSION = tf.autograph.experimental.do_not_convert

Pipelines = Dict[str, Callable[[], Iterator[int]]]


def bound_tensorflow(threads: int) -> None:
    """Let TensorFlow have as many threads as there are cores for this process."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def open_pipelines(task: Task) -> Tuple[Pipelines, float]:
    """The pipelines of a workload by name, and the megabytes of one record."""
    threads = len(task.cores)
    directory = Path(task.data_dir)
    if task.workload == "cosmoflow":
        index = open_index(cosmoflow.find_files(directory, "train"), threads=threads)
        # The volume is nearly all of a record.
        side = int((int(index.lengths[0]) / 8) ** (1 / 3) + 1e-6) if index.records else 1
        data = CosmoflowData(directory=task.data_dir, n_train=10**9, side=side)
        source: Source = cosmoflow.CosmoflowRecords(data, "train", threads=threads)
        others: Pipelines = {
            "reference": lambda: _volumes_as_usual(index, task, side),
            "limit": lambda: _plain_reads(index, threads),
        }
    else:
        index = open_index(imagenet.find_files(directory, "train"), threads=threads)
        source = imagenet.ImagenetRecords(directory, "train", seed=0, augment=True, threads=threads)
        others = {
            "reference": lambda: _images_as_usual(index, task),
            "limit": lambda: _decoding_alone(index, threads),
        }
    pipelines: Pipelines = {"ours": lambda: _ours(source, task), **others}
    named: Pipelines = {name: functools.partial(_named, pipeline, directory) for name, pipeline in pipelines.items()}
    return named, float(index.lengths.mean()) / 1e6


def _named(pipeline: Callable[[], Iterator[int]], directory: Path) -> Iterator[int]:
    """The pipeline; a set that it cannot read ends as a DataError. Where, only ours says by itself."""
    try:
        yield from pipeline()
    except (tf.errors.OpError, NotAnExample, NotAnImage) as error:
        hint = f"ipulaunch data verify {directory} says where"
        raise DataError(f"{directory} cannot be read: {str(error).splitlines()[0]}", hint=hint) from error


def _ours(source: Source, task: Task) -> Iterator[int]:
    batch = Batch(_MICRO_SIZES[task.workload], task.instances, 1)
    replicas = range(task.instance, task.instance + 1)
    threads = len(task.cores)
    stream = training_stream(
        source, batch, replicas, shuffle=Shuffle(0), updates=_ENDLESS, by_replica=False, threads=threads
    )
    with data_errors(source):
        for inputs, *_ in stream:
            yield int(inputs.shape[0])


def _records(index: Index, task: Task) -> tf.data.Dataset:
    """The records of an instance without end, as pipelines share them out by file; all of them for too few files."""
    files = range(len(index.paths))
    mine = files[task.instance :: task.instances] or files
    paths = [str(index.paths[file]) for file in mine]
    kinds = ["GZIP" if index.packed[file] else "" for file in mine]
    # What TFRecordDataset itself makes of a list of files, which have to be all packed or all not.
    return tf.data.Dataset.from_tensor_slices((paths, kinds)).flat_map(tf.data.TFRecordDataset).repeat()


def _volumes_as_usual(index: Index, task: Task, side: int) -> Iterator[int]:
    shape = (side, side, side, 4)
    features = {"x": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([4], tf.float32)}

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        volume = tf.cast(tf.reshape(tf.io.decode_raw(example["x"], tf.int16), shape), tf.float32)
        return volume / tf.reduce_mean(volume), example["y"]

    records = _records(index, task)
    for inputs, _ in records.map(_NO_CONVERSION(parse), 4).batch(1, drop_remainder=True).prefetch(4):
        yield int(inputs.shape[0])


def _plain_reads(index: Index, threads: int) -> Iterator[int]:
    """Whole files into memory that is there already."""
    firsts = index.firsts
    sizes = [path.stat().st_size for path in index.paths]
    buffers = itertools.cycle([bytearray(max(sizes)) for _ in range(5 * threads)])  # one for each read under way

    def read(item: Tuple[int, bytearray]) -> int:
        file, buffer = item
        with index.paths[file].open("rb", buffering=0) as stream:
            stream.readinto(memoryview(buffer)[: sizes[file]])
        return int(firsts[file + 1] - firsts[file])

    yield from in_order(read, zip(itertools.cycle(range(len(sizes))), buffers), threads)


def _images_as_usual(index: Index, task: Task) -> Iterator[int]:
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
        image = tf.image.resize(tf.image.random_flip_left_right(crop), (imagenet.SIDE, imagenet.SIDE))
        return tf.cast(image, tf.uint8), tf.cast(example["image/class/label"], tf.int32) - 1

    records = _records(index, task)
    images = records.map(_NO_CONVERSION(parse), 48).batch(_MICRO_SIZES["imagenet"], drop_remainder=True)
    for inputs, _ in images.prefetch(4):
        yield int(inputs.shape[0])


def _decoding_alone(index: Index, threads: int) -> Iterator[int]:
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
            objects = imagenet.marked_objects(data, features)
            windows.append(random_window(Draws(0, 0, record), header.height, header.width, objects))

    def decode(image: Any, window: Any) -> Any:
        return tf.io.decode_and_crop_jpeg(image, window, 3)[0, 0]

    images = tf.data.Dataset.from_tensor_slices((np.array(encoded, object), np.array(windows, np.int32))).repeat()
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    size = math.gcd(_MICRO_SIZES["imagenet"], _LIMIT_IMAGES)
    for pixels in images.map(_NO_CONVERSION(decode), threads).batch(size).prefetch(4).with_options(options):
        yield int(pixels.shape[0])
