"""ImageNet's records: `image/encoded`, a JPEG, and `image/class/label`, from 1. Images leave the host as uint8.

Samples are planned some hundred at a time from what the index keeps of them; then one call of Python reads, decodes and
scales up to 16 images, into one array of reused memory that TensorFlow takes over without a copy. A validation image is
decoded and scaled by TensorFlow's own ops, as in the published preparation.

Training images are scaled by OpenCV's bilinear resize, which keeps uint8 and differs from TensorFlow's, in float, by
rounding: it takes 0.1 ms where TensorFlow's takes 0.6 and another 0.2 to round (a crop of 285 x 285, processor time,
TensorFlow 2.15). The decoder's own scaling to a half or less stays off: its pixels differ by up to 4 grey levels in the
mean.
"""

from __future__ import annotations

import collections
import functools
from pathlib import Path
from typing import Any, Callable, Deque, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.published_sets import PUBLISHED_SETS
from ipulaunch.configs.text import counted
from ipulaunch.data_pipeline.records.files import shards
from ipulaunch.data_pipeline.records.index import Index, Progress, open_index
from ipulaunch.data_pipeline.records.memory import ReusedMemory
from ipulaunch.data_pipeline.sources import image_decoding
from ipulaunch.data_pipeline.sources.imagenet_contents import PictureContents, pictures
from ipulaunch.data_pipeline.sources.imagenet_images import TrainingImages
from ipulaunch.data_pipeline.sources.imagenet_plan import PlannedSample, SamplePlanner
from ipulaunch.data_pipeline.sources.imagenet_samples import SampleReader, Workspace
from ipulaunch.data_pipeline.sources.source import Source, unconverted, untuned

SIDE, CHANNELS = image_decoding.SIDE, image_decoding.CHANNELS
CLASSES = 1000

_MOST_AT_ONCE = 16  # images that are read, decoded and scaled by one call
_PLANNED_AT_ONCE = 256  # samples: planned alone, one takes 150 microseconds instead of 4


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
        index: Optional[Index] = None,
        replaces_bad: bool = False,
        progress: Optional[Progress] = None,
    ) -> None:
        super().__init__()
        self.replaces_bad = replaces_bad  # a sample that cannot be read is replaced by its neighbour
        files = files or find_files(data_dir, split)
        if index is None:
            index = open_index(
                files, threads=threads, progress=progress, tolerant=replaces_bad, contents=PictureContents()
            )
        self.index: Index = index
        if not self.index.records:
            hint = self.index.defects[0].message if self.index.defects else ""
            raise DataError(f"the {len(files)} {split} files in {data_dir} hold no record", hint=hint)
        self.samples = self.index.records
        self.augment, self.side = augment, side
        self.planner = SamplePlanner(self.index, pictures(self.index.contents), seed=seed, augment=augment)
        self.reader = SampleReader(self.index, classes=classes)
        self.training = TrainingImages(self.reader, seed=seed, side=side) if augment else None
        self.memory = ReusedMemory()
        self.idle: List[Workspace] = []  # one for each thread that has read at the same time
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

        def joined(*values: Any) -> Any:
            return tuple(tf.reshape(value, (micro_size, *value.shape[2:])) for value in values)

        if parts > 1:
            numbers = numbers.map(
                unconverted(lambda epoch, ids: (tf.fill([parts], epoch), tf.reshape(ids, [parts, size])))
            ).unbatch()
        planned = self._planned(numbers, size, threads)
        make = self._trained if self.augment else self._validated
        made = make(planned, size, threads, parts, 3 if traced else 2)
        if parts > 1:
            made = made.batch(parts, drop_remainder=True).map(unconverted(joined))
        return untuned(made)

    def _planned(self, numbers: tf.data.Dataset, size: int, threads: int) -> tf.data.Dataset:
        """(epoch, planned samples) for each (epoch, numbers)."""
        plan = self.guarded(self.planner.plan)

        def planned(epochs: Any, ids: Any) -> Any:
            samples = tf.numpy_function(plan, [epochs, ids], tf.int64)
            samples.set_shape((None, size, len(PlannedSample._fields)))
            return epochs, samples

        return numbers.batch(max(1, _PLANNED_AT_ONCE // size)).map(unconverted(planned)).unbatch()

    def _trained(self, planned: tf.data.Dataset, size: int, threads: int, parts: int, fields: int) -> tf.data.Dataset:
        """The first of (images, labels, numbers of the records) for training."""
        make = self.guarded(self.make_images)

        def images(epoch: Any, samples: Any) -> Any:
            found = tf.numpy_function(make, [epoch, samples], [tf.uint8, tf.int32, tf.int64])
            for value, shape in zip(found, ((size, self.side, self.side, CHANNELS), (size,), (size,))):
                value.set_shape(shape)
            return tuple(found[:fields])

        return planned.map(unconverted(images), threads, deterministic=True)

    def make_images(self, epoch: np.ndarray, plan: np.ndarray) -> Tuple[np.ndarray, ...]:
        """The training images of planned samples of an epoch, their labels, and the records that were read."""
        images = self.memory.array((len(plan), self.side, self.side, CHANNELS), np.uint8)
        training = self.training
        assert training is not None

        def make(sample: PlannedSample, place: int, workspace: Workspace) -> Tuple[int, int]:
            return training.make(int(epoch), sample, images[place], workspace), sample.record

        labels, records = zip(*self._for_each(int(epoch), plan, make))
        return images, np.array(labels, np.int32) - 1, np.array(records, np.int64)

    def _validated(self, planned: tf.data.Dataset, size: int, threads: int, parts: int, fields: int) -> tf.data.Dataset:
        """The first of (images, labels, numbers of the records) for validation."""
        # More than reading can be ahead of a decoding error: two maps, and the stream's own prefetch.
        self.recent = collections.deque(maxlen=parts * (8 * threads + 8))
        read = self.guarded(self._read_encoded)

        def fetch(epoch: Any, samples: Any) -> Any:
            found = tf.numpy_function(read, [epoch, samples], [tf.string, tf.int32, tf.int64, tf.bool, tf.int32])
            for value, more in zip(found, ([], [], [], [], [2])):
                value.set_shape([size, *more])
            return found

        def images(encoded: Any, labels: Any, records: Any, are_png: Any, sizes: Any) -> Any:
            make = image_decoding.validation_image
            made = tf.stack([make(self.side, encoded[n], are_png[n], sizes[n]) for n in range(size)])
            return (made, labels, records)[:fields]

        made = planned.map(unconverted(fetch), threads, deterministic=True)
        return made.map(unconverted(images), threads, deterministic=True)

    def _read_encoded(self, epoch: np.ndarray, plan: np.ndarray) -> Tuple[np.ndarray, ...]:
        self.recent.append(plan[:, 0])
        found = self._for_each(int(epoch), plan, self._read_one)
        encoded = np.empty(len(plan), object)  # NumPy's own byte strings lose the zeros at their end
        images, labels, records, are_png, sizes = zip(*found)
        encoded[:] = images
        return (
            encoded,
            np.array(labels, np.int32) - 1,
            np.array(records, np.int64),
            np.array(are_png),
            np.array(sizes, np.int32),
        )

    def _read_one(self, sample: PlannedSample, place: int, workspace: Workspace) -> Tuple[Any, ...]:
        if not self.reader.is_odd(sample):
            encoded = self.reader.encoded(sample, workspace).tobytes()
            return encoded, sample.label, sample.record, False, (sample.height, sample.width)
        odd = self.reader.read(sample.record)
        return odd.encoded, odd.label, odd.record, odd.header.format == "PNG", (odd.header.height, odd.header.width)

    def _for_each(self, epoch: int, plan: np.ndarray, work: Callable[..., Tuple[Any, ...]]) -> List[Tuple[Any, ...]]:
        """The results of the work on (planned sample, its place, memory); on its neighbour, if a sample is bad."""
        workspace = self.idle.pop() if self.idle else Workspace()
        if self.replaces_bad:
            work = functools.partial(self._work_near, epoch, work)
        found = [work(PlannedSample(*row), place, workspace) for place, row in enumerate(plan.tolist())]
        self.idle.append(workspace)
        return found

    def _work_near(
        self, epoch: int, work: Callable[..., Tuple[Any, ...]], sample: PlannedSample, place: int, workspace: Workspace
    ) -> Tuple[Any, ...]:
        """The work on the sample, or on the next one that can be read and decoded."""

        def work_on(record: int) -> Tuple[Any, ...]:
            self._require_decodable(record)
            if record == sample.record:
                return work(sample, place, workspace)
            (row,) = self.planner.plan(np.array([epoch]), np.array([[record]]))[0].tolist()
            return work(PlannedSample(*row), place, workspace)

        return self.near(sample.record, work_on)

    def _require_decodable(self, record: int) -> None:
        """Decode a whole image, once; an error if that fails."""
        if not self.decodable[record]:
            defect = image_decoding.defect_of(self.reader.read(record).encoded)
            if defect is not None:
                raise self.reader.undecodable(record, defect)
            self.decodable[record] = True

    def _undecodable(self) -> Optional[DataError]:
        """The first of the records read last whose image cannot be decoded."""
        for record in (int(number) for ids in list(self.recent) for number in ids):
            try:
                defect = image_decoding.defect_of(self.reader.read(record).encoded)
            except DataError as error:
                return error
            if defect is not None:
                return self.reader.undecodable(record, defect)
        return None
