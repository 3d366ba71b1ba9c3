"""ImageNet's records: `image/encoded`, a JPEG, and `image/class/label`, from 1. Images leave the host as uint8.

Training crops are decoded alone, not the whole image: with the fast DCT, and at a half, a quarter or an eighth of the
size where that still leaves a pixel for each one wanted. The pixels differ from those of an exact decoding of the same
crop by about 1 grey level in the mean at full size, and by the image's finest detail (up to 4 levels, for 224 pixels)
below it. The resize is TensorFlow's float one on uint8 pixels, rounded: its ops that keep uint8 (nearest neighbour,
quantised bilinear) took a third longer with TensorFlow 2.15 and 2.21. `fancy_upscaling` stays on: without it, decoding
crops ended TensorFlow 2.6 with a damaged heap.

Measured on two busy cores, in processor time for an image of 112 kB: as much as the usual pipeline, 1.9 ms with
TensorFlow 2.15 and 2.1 with 2.6. Decoding the crop alone takes 1.2 to 1.5 of them, nearly all of it in undoing the
Huffman code, which a smaller scale does not spare (whole images: 1.6 ms at full size, 1.5 at an eighth). Tried without
gain: one eager op after the other inside the reading function (2.8 ms), another malloc threshold, flips without cond.
"""

from __future__ import annotations

import collections
import functools
import re
import struct
from pathlib import Path
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.augmentation import Box, Draws, Window, random_window
from ipulaunch.data_pipeline.example import NotAnExample, Span, find_features
from ipulaunch.data_pipeline.image_header import ImageHeader, NotAnImage, read_header
from ipulaunch.data_pipeline.index import Index, Progress, open_index
from ipulaunch.data_pipeline.record_reader import RecordReader
from ipulaunch.data_pipeline.source import Source, untuned
from ipulaunch.data_pipeline.tfrecord import Buffer

SIDE = 224
SHORTER_SIDE = 256  # of a validation image, before its centre of SIDE is cut out
CHANNELS = 3
CLASSES = 1000

_RATIOS = (1, 2, 4, 8)
_PNG = len(_RATIOS)  # after the ways to decode a JPEG
_END_OF_JPEG = b"\xff\xd9"
_MOST_NEIGHBOURS = 100
_BOX = ("image/object/bbox/ymin", "image/object/bbox/xmin", "image/object/bbox/ymax", "image/object/bbox/xmax")
_NO_CONVERSION = tf.autograph.experimental.do_not_convert


def find_files(data_dir: Path, split: str) -> Tuple[Path, ...]:
    """The record files of a split, in the order of their names."""
    name = re.compile(rf"{split}-\d+-of-\d+")
    found = sorted(path for path in data_dir.glob(f"{split}-*") if name.fullmatch(path.name))
    if not found:
        hint = "the prepared set has train-00000-of-01024 and so on; small ones: ipulaunch data make imagenet"
        raise DataError(f"there are no {split}-NNNNN-of-NNNNN files in {data_dir}", hint=hint)
    return tuple(found)


class _Sample(NamedTuple):
    """A record, and how to make its image."""

    encoded: bytes
    label: int
    way: int  # to decode
    window: Window
    flip: bool


class _Workspace:
    """What the samples of a micro-batch are made with, one after the other: numbers to draw, and room for a record.

    Of a record's memory only the JPEG's stays. In fresh memory, reading one took 90 microseconds; its steps, in memory
    used before, take 20.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        self.draws, self.room = Draws(seed, epoch, 0), bytearray()

    def room_for(self, size: int) -> memoryview:
        if len(self.room) < size:
            self.room = bytearray(size)
        return memoryview(self.room)[:size]


class ImagenetRecords(Source):
    """Samples of a split, fetched by number, cropped, flipped if `augment`, and scaled to `side` x `side` pixels."""

    replaces_bad = False  # a sample that cannot be read is replaced by its neighbour
    met: Optional[DataError]

    def __init__(
        self,
        data_dir: Path,
        split: str,
        *,
        seed: int,
        augment: bool,
        threads: int,
        side: int = SIDE,
        classes: int = CLASSES,
        progress: Optional[Progress] = None,
    ) -> None:
        super().__init__()
        files = find_files(data_dir, split)
        self.index: Index = open_index(files, threads=threads, progress=progress)
        if not self.index.records:
            raise DataError(f"the {len(files)} {split} files in {data_dir} hold no record")
        self.samples = self.index.records
        self.seed, self.augment, self.side, self.classes = seed, augment, side, classes
        self.reader = RecordReader(self.index)
        self.recent: Deque[np.ndarray] = collections.deque(maxlen=1)  # numbers of the micro-batches read last

    @property
    def error(self) -> Optional[DataError]:
        """The first error met. The decoder's own do not say where, so they are looked for in what was read last."""
        self.met = self.met or self._undecodable()
        return self.met

    @error.setter
    def error(self, error: Optional[DataError]) -> None:
        self.met = error

    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        # More than what reading can be ahead of a decoding error by: two maps, and the stream's own prefetch.
        self.recent = collections.deque(maxlen=8 * threads + 8)
        read = self.guarded(self._read)
        decode = functools.partial(_training_image if self.augment else _validation_image, self.side)

        def fetch(epoch: Any, ids: Any) -> Any:
            return tf.numpy_function(read, [epoch, ids], [tf.string, tf.int32, tf.int32, tf.int32, tf.bool])

        def make(encoded: Any, label: Any, way: Any, window: Any, flip: Any) -> Any:
            for value, shape in ((encoded, []), (label, []), (way, []), (window, [4]), (flip, [])):
                value.set_shape(shape)
            return decode(encoded, way, window, flip), label

        # Records are read by the micro-batch, which asks Python once, and decoded one by one, which fills the threads.
        samples = numbers.map(fetch, threads, deterministic=True).unbatch()
        images = samples.map(_NO_CONVERSION(make), threads, deterministic=True)
        return untuned(images.batch(micro_size, drop_remainder=True))

    def _read(self, epoch: np.ndarray, ids: np.ndarray) -> Tuple[np.ndarray, ...]:
        self.recent.append(ids)
        fetch = self._sample_near if self.replaces_bad else self._sample
        workspace = _Workspace(self.seed, int(epoch))
        samples = [fetch(workspace, int(number)) for number in ids]
        encoded = np.empty(len(ids), object)  # NumPy's own byte strings lose the zeros at their end
        encoded[:] = [sample.encoded for sample in samples]
        return (
            encoded,
            np.array([sample.label for sample in samples], np.int32),
            np.array([sample.way for sample in samples], np.int32),
            np.array([sample.window for sample in samples], np.int32),
            np.array([sample.flip for sample in samples]),
        )

    def _sample_near(self, workspace: _Workspace, record: int) -> _Sample:
        """The sample, or the next one that can be read and whose JPEG has an end: one without is cut off."""
        for distance in range(_MOST_NEIGHBOURS):
            neighbour = (record + distance) % self.samples
            try:
                sample = self._sample(workspace, neighbour)
                if sample.way == _PNG or _END_OF_JPEG in sample.encoded:
                    return sample
                raise DataError(f"{self.index.place(neighbour)}: the JPEG is cut off")
            except DataError as error:
                self.bad[neighbour] = error
        raise DataError(f"{_MOST_NEIGHBOURS} samples in a row from number {record} on cannot be read")

    def _sample(self, workspace: _Workspace, record: int) -> _Sample:
        size = int(self.index.lengths[record])
        self.reader.read_into(record, [workspace.room_for(size)])
        data = workspace.room
        try:
            features = find_features(data, size)
        except NotAnExample as error:
            raise DataError(f"{self.index.place(record)}: not a tf.train.Example: {error}") from error
        span = self._span(record, features, "image/encoded", "bytes")
        encoded = bytes(memoryview(data)[span.start : span.stop])
        label = self._label(record, data, self._span(record, features, "image/class/label", "ints"))
        try:
            header = read_header(encoded)
        except NotAnImage as error:
            raise DataError(f"{self.index.place(record)}: image/encoded is {error}") from error
        if not self.augment:
            return _Sample(encoded, label, _way(header, 1), Window(0, 0, header.height, header.width), False)
        draws = workspace.draws
        draws.restart(record)
        (flip,) = draws.take(1)
        window = random_window(draws, header.height, header.width, marked_objects(data, features))
        ratio = 1
        if header.format == "JPEG":
            ratio = max(r for r in _RATIOS if r == 1 or min(window.height, window.width) >= r * self.side)
        return _Sample(encoded, label, _way(header, ratio), Window(*(n // ratio for n in window)), flip < 0.5)

    def _span(self, record: int, features: Dict[str, Span], name: str, kind: str) -> Span:
        span = features.get(name)
        if span is None or span.start == span.stop:
            hint = "ImageNet records have image/encoded and image/class/label"
            raise DataError(f"{self.index.place(record)}: there is no feature {name}", hint=hint)
        if span.kind != kind:
            raise DataError(f"{self.index.place(record)}: {name} holds {span.kind or 'nothing'}, expected {kind}")
        return span

    def _label(self, record: int, data: bytearray, span: Span) -> int:
        label = 0
        for shift, byte in enumerate(data[span.start : span.stop]):
            label |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                break
        label -= label >> 63 << 64  # two's complement
        if not 1 <= label <= self.classes:
            hint = "labels count from 1, and data.classes says how far; is it another data set?"
            raise DataError(f"{self.index.place(record)}: label {label}, expected 1 to {self.classes}", hint=hint)
        return label - 1

    def _undecodable(self) -> Optional[DataError]:
        """The first of the records read last whose image cannot be decoded."""
        workspace = _Workspace(self.seed, 0)
        for record in (int(number) for ids in list(self.recent) for number in ids):
            try:
                tf.io.decode_image(self._sample(workspace, record).encoded, 3, expand_animations=False)
            except DataError as error:
                return error
            except tf.errors.InvalidArgumentError as error:
                reason = str(error).split(" [Op:")[0].splitlines()[0]
                return DataError(f"{self.index.place(record)}: the image cannot be decoded: {reason}")
        return None


def _way(header: ImageHeader, ratio: int) -> int:
    return _PNG if header.format == "PNG" else _RATIOS.index(ratio)


def marked_objects(data: Buffer, features: Dict[str, Span]) -> Optional[List[Box]]:
    """The marked objects of an image, if there are any."""
    columns = []
    for span in (features.get(name) for name in _BOX):
        if span is None or span.kind != "floats":
            return None
        columns.append(struct.unpack_from(f"<{(span.stop - span.start) // 4}f", data, span.start))
    boxes: List[Box] = list(zip(*columns))
    return boxes or None


def _training_image(side: int, encoded: Any, way: Any, window: Any, flip: Any) -> Any:
    def scaled(ratio: int) -> Any:
        return lambda: tf.io.decode_and_crop_jpeg(encoded, window, 3, ratio, dct_method="INTEGER_FAST")

    def png() -> Any:
        return tf.slice(tf.io.decode_png(encoded, 3), [window[0], window[1], 0], [window[2], window[3], 3])

    crop = tf.switch_case(way, [*(scaled(ratio) for ratio in _RATIOS), png])
    image = _to_uint8(_resize(crop, (side, side)))
    turned = tf.cond(flip, lambda: tf.raw_ops.Reverse(tensor=image, dims=[False, True, False]), lambda: image)
    return tf.ensure_shape(turned, (side, side, CHANNELS))


def _validation_image(side: int, encoded: Any, way: Any, window: Any, flip: Any) -> Any:
    """The centre of the image scaled to a shorter side of 256/224 of `side`, with the exact DCT."""

    def jpeg() -> Any:
        return tf.io.decode_jpeg(encoded, 3, dct_method="INTEGER_ACCURATE")

    image = tf.cond(way == _PNG, lambda: tf.io.decode_png(encoded, 3), jpeg)
    height, width = window[2], window[3]
    size = tf.stack([height, width]) * round(side * SHORTER_SIDE / SIDE) // tf.minimum(height, width)
    top, left = (size[0] - side) // 2, (size[1] - side) // 2
    centre = tf.slice(_resize(image, size), [top, left, 0], [side, side, CHANNELS])
    return tf.ensure_shape(_to_uint8(centre), (side, side, CHANNELS))


def _resize(image: Any, size: Any) -> Any:
    """Bilinear, on pixels as they are: the op takes uint8, which spares a pass over the crop."""
    scaled = tf.raw_ops.ResizeBilinear(images=tf.expand_dims(image, 0), size=size, half_pixel_centers=True)
    return tf.squeeze(scaled, 0)


def _to_uint8(image: Any) -> Any:
    return tf.cast(image + 0.5, tf.uint8)  # the nearest: values are at most 255
