"""ImageNet's records: `image/encoded`, a JPEG, and `image/class/label`, from 1. Images leave the host as uint8.

For training, only the crop is decoded, not the whole image. The resize is OpenCV's bilinear one, which keeps uint8 and
differs from TensorFlow's, in float, by rounding: it takes 0.1 ms where TensorFlow's takes 0.6 and another 0.2 to round
(a crop of 285 x 285, processor time, TensorFlow 2.15). `fancy_upscaling` stays on: without it, decoding crops ended
TensorFlow 2.6 with a damaged heap. The decoder's own scaling to a half or less stays off: its pixels differ by up to 4
grey levels in the mean.

An image of 112 kB now takes 1.5 ms of processor time, of which 1.1 go into the Huffman code of the crop, which a
smaller scale would not save. Tried without gain: OpenCV's decoder (1.4 ms, for it decodes the whole image), one
eager op after the other inside the reading function, another malloc threshold, telling the decoder that the image ends
below the crop, about which it also complains. What helped: reading and scaling up to 16 images in one call of Python,
into one array; with a tensor for every image, it took 1.7 ms. Scaling them into reused memory, which TensorFlow takes
over without a copy, saved another 4 %.
"""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any, Deque, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.text import counted
from ipulaunch.data_pipeline.ending import ends_with_python
from ipulaunch.data_pipeline.records.files import shards
from ipulaunch.data_pipeline.records.index import Index, Progress, open_index
from ipulaunch.data_pipeline.records.memory import ReusedMemory
from ipulaunch.data_pipeline.sources import image_decoding
from ipulaunch.data_pipeline.sources.imagenet_samples import Sample, SampleReader, Workspace
from ipulaunch.data_pipeline.sources.source import Source, untuned

SIDE, CHANNELS = image_decoding.SIDE, image_decoding.CHANNELS
CLASSES = 1000

_MOST_AT_ONCE = 16  # images that are read, decoded and scaled by one call each
_NO_CONVERSION = tf.autograph.experimental.do_not_convert


def find_files(data_dir: Path, split: str) -> Tuple[Path, ...]:
    """The record files of a split, in the order of their names; an error unless all are there and belong to one set."""
    found = shards(data_dir, split)
    if not found.paths:
        hint = PUBLISHED_SETS["imagenet"].hint
        raise DataError(f"there are no {split}-NNNNN-of-NNNNN files in {data_dir}", hint=hint)
    for wrong, said, hint in (
        (found.missing, f"of {len(found.paths) + len(found.missing)} missing", "copy them again, or build the set"),
        (found.strangers, f"of another set than {found.paths[0].name}", "keep each set in a directory of its own"),
    ):
        if wrong:
            names = ", ".join([path.name for path in wrong[:3]] + ["..."] * (len(wrong) > 3))
            raise DataError(f"{data_dir}: {counted(len(wrong), f'{split} file')} {said}: {names}", hint=hint)
    return found.paths


class ImagenetRecords(Source):
    """Samples of a split, fetched by number, cropped, flipped if `augment`, and scaled to `side` x `side` pixels."""

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
        files: Optional[Sequence[Path]] = None,
        replaces_bad: bool = False,
        progress: Optional[Progress] = None,
    ) -> None:
        super().__init__()
        self.replaces_bad = replaces_bad  # a sample that cannot be read is replaced by its neighbour
        files = files or find_files(data_dir, split)
        self.index: Index = open_index(files, threads=threads, progress=progress, tolerant=replaces_bad)
        if not self.index.records:
            hint = self.index.defects[0].message if self.index.defects else ""
            raise DataError(f"the {len(files)} {split} files in {data_dir} hold no record", hint=hint)
        self.samples = self.index.records
        self.seed, self.augment, self.side = seed, augment, side
        self.opencv: Any = image_decoding.opencv() if augment else None
        self.reader = SampleReader(self.index, augment=augment, classes=classes)
        self.memory = ReusedMemory()
        self.recent: Deque[np.ndarray] = collections.deque(maxlen=1)  # numbers of the micro-batches read last
        self.decodable = np.zeros(self.samples, bool)  # records that have been decoded once without an error

    def cause(self) -> Optional[DataError]:
        """The first error. The decoder's errors do not name a record, so this looks for it in the records read last.

        Where bad samples are replaced, it need not look: every image was decoded once before it was passed on.
        """
        return self.error or (None if self.replaces_bad else self._undecodable())

    def following(self, number: int) -> int:
        return self.reader.records.following(number)

    def dataset(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        return self._made(numbers, micro_size, threads, traced=False)

    def traced(self, numbers: tf.data.Dataset, micro_size: int, threads: int) -> tf.data.Dataset:
        return self._made(numbers, micro_size, threads, traced=True)

    def _made(self, numbers: tf.data.Dataset, micro_size: int, threads: int, *, traced: bool) -> tf.data.Dataset:
        size = max(count for count in range(1, _MOST_AT_ONCE + 1) if micro_size % count == 0)
        parts = micro_size // size
        # More than reading can be ahead of a decoding error: two maps, and the stream's own prefetch.
        self.recent = collections.deque(maxlen=parts * (8 * threads + 8))
        read = self.guarded(self._read)
        make = self._training_images if self.augment else self._validation_images

        def fetch(epoch: Any, ids: Any) -> Any:
            kinds = [tf.string, tf.int32, tf.int64, tf.bool, tf.int32, tf.bool]
            found = tf.numpy_function(read, [epoch, ids], kinds)
            for value, more in zip(found, ([], [], [], [], [4], [])):
                value.set_shape([size, *more])
            return found

        def images(encoded: Any, labels: Any, records: Any, are_png: Any, windows: Any, flips: Any) -> Any:
            made = (make(encoded, are_png, windows, flips), labels, records)
            return made if traced else made[:2]

        def joined(*values: Any) -> Any:
            return tuple(tf.reshape(value, (micro_size, *value.shape[2:])) for value in values)

        if parts > 1:
            numbers = numbers.map(
                lambda epoch, ids: (tf.fill([parts], epoch), tf.reshape(ids, [parts, size]))
            ).unbatch()
        made = numbers.map(fetch, threads, deterministic=True)
        made = made.map(_NO_CONVERSION(images), threads, deterministic=True)
        if parts > 1:
            made = made.batch(parts, drop_remainder=True).map(joined)
        return untuned(made)

    def _training_images(self, encoded: Any, are_png: Any, windows: Any, flips: Any) -> Any:
        crops = image_decoding.crops(encoded, are_png, windows)
        images = tf.numpy_function(ends_with_python(self._scaled), [flips, *crops], tf.uint8)
        return tf.ensure_shape(images, (len(crops), self.side, self.side, CHANNELS))

    def _scaled(self, flips: np.ndarray, *crops: np.ndarray) -> np.ndarray:
        images = self.memory.array((len(crops), self.side, self.side, CHANNELS), np.uint8)
        for image, crop, flip in zip(images, crops, flips):
            self.opencv.resize(crop, (self.side, self.side), dst=image, interpolation=self.opencv.INTER_LINEAR)
            if flip:
                self.opencv.flip(image, 1, dst=image)
        return images

    def _validation_images(self, encoded: Any, are_png: Any, windows: Any, flips: Any) -> Any:
        make = image_decoding.validation_image
        return tf.stack([make(self.side, encoded[n], are_png[n], windows[n]) for n in range(encoded.shape[0])])

    def _read(self, epoch: np.ndarray, ids: np.ndarray) -> Tuple[np.ndarray, ...]:
        self.recent.append(ids)
        fetch = self._sample_near if self.replaces_bad else self.reader.read
        workspace = Workspace(self.seed, int(epoch))
        samples = [fetch(workspace, int(number)) for number in ids]
        encoded = np.empty(len(ids), object)  # NumPy's own byte strings lose the zeros at their end
        encoded[:] = [sample.encoded for sample in samples]
        return (
            encoded,
            np.array([sample.label for sample in samples], np.int32),
            np.array([sample.record for sample in samples], np.int64),
            np.array([sample.is_png for sample in samples]),
            np.array([sample.window for sample in samples], np.int32),
            np.array([sample.flip for sample in samples]),
        )

    def _sample_near(self, workspace: Workspace, record: int) -> Sample:
        """The sample, or the next one that can be read and decoded."""
        return self.near(record, lambda neighbour: self._decodable_sample(workspace, neighbour))

    def _decodable_sample(self, workspace: Workspace, record: int) -> Sample:
        sample = self.reader.read(workspace, record)
        if not self.decodable[record]:
            defect = image_decoding.defect_of(sample.encoded)
            if defect is not None:
                raise self._undecodable_at(record, defect)
            self.decodable[record] = True
        return sample

    def _undecodable_at(self, record: int, defect: str) -> DataError:
        return DataError(f"{self.index.place(record)}: the image cannot be decoded: {defect}")

    def _undecodable(self) -> Optional[DataError]:
        """The first of the records read last whose image cannot be decoded."""
        workspace = Workspace(self.seed, 0)
        for record in (int(number) for ids in list(self.recent) for number in ids):
            try:
                defect = image_decoding.defect_of(self.reader.read(workspace, record).encoded)
            except DataError as error:
                return error
            if defect is not None:
                return self._undecodable_at(record, defect)
        return None
