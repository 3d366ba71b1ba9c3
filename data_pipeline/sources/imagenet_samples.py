"""ImageNet's records: the encoded image of a planned sample, or all of a record that is odd or has a defect to name."""

from __future__ import annotations

from typing import Dict, List, NamedTuple

import numpy as np

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records.example import NotAnExample, Span, find_features
from ipulaunch.data_pipeline.records.index import Index
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.records.tfrecord import FOOTER, Buffer
from ipulaunch.data_pipeline.sources.image_header import ImageHeader, NotAnImage, read_header
from ipulaunch.data_pipeline.sources.imagenet_contents import BOX, IMAGE, LABEL, varint
from ipulaunch.data_pipeline.sources.imagenet_plan import PlannedSample

_MOST_KEPT = 1 << 24  # bytes; rare images are larger


class Workspace:
    """Memory that one image after the other is read and decoded into.

    Reading a record took 90 microseconds in fresh memory and takes 20 in reused memory.
    """

    def __init__(self) -> None:
        self.record, self.pixels = np.empty(0, np.uint8), np.empty(0, np.uint8)

    def room_for_record(self, size: int) -> np.ndarray:
        if len(self.record) < size:
            self.record = np.empty(size, np.uint8)
        return self.record[:size]

    def room_for_pixels(self, size: int) -> np.ndarray:
        if size > _MOST_KEPT:
            return np.empty(size, np.uint8)
        if len(self.pixels) < size:
            self.pixels = np.empty(size, np.uint8)
        return self.pixels[:size]


class Sample(NamedTuple):
    """A record's image, still encoded."""

    record: int
    encoded: bytes
    label: int  # from 1
    header: ImageHeader
    boxes: np.ndarray  # [objects, 4], as parts of the image


class SampleReader:
    """Reads samples that are planned, or by their number."""

    def __init__(self, index: Index, *, classes: int) -> None:
        self.index, self.records, self.classes = index, RecordReader(index), classes

    def is_odd(self, sample: PlannedSample) -> bool:
        """Whether only the whole record says what the sample is, or what is wrong with it."""
        return not sample.width or not 1 <= sample.label <= self.classes

    def encoded(self, sample: PlannedSample, workspace: Workspace) -> np.ndarray:
        """A sample's image, in memory of the workspace."""
        room = workspace.room_for_record(sample.length + FOOTER)
        self.records.fill(sample.record, sample.file, room)
        return room[sample.start : sample.start + sample.size]

    def read(self, record: int) -> Sample:
        """A sample; an error with its place if it is not as ImageNet's are."""
        data = self.records.read(record)
        try:
            features = find_features(data)
        except NotAnExample as error:
            raise DataError(f"{self.index.place(record)}: not a tf.train.Example: {error}") from error
        span = self._span(record, features, IMAGE, "bytes")
        encoded = data[span.start : span.stop]
        label = self._label(record, data, self._span(record, features, LABEL, "ints"))
        try:
            header = read_header(encoded)
        except NotAnImage as error:
            raise DataError(f"{self.index.place(record)}: {IMAGE} is {error}") from error
        return Sample(record, encoded, label, header, marked_objects(data, features))

    def undecodable(self, record: int, defect: str) -> DataError:
        return DataError(f"{self.index.place(record)}: the image cannot be decoded: {defect}")

    def _span(self, record: int, features: Dict[str, Span], name: str, kind: str) -> Span:
        span = features.get(name)
        if span is None or span.start == span.stop:
            hint = f"ImageNet records have {IMAGE} and {LABEL}"
            raise DataError(f"{self.index.place(record)}: there is no feature {name}", hint=hint)
        if span.kind != kind:
            raise DataError(f"{self.index.place(record)}: {name} holds {span.kind or 'nothing'}, expected {kind}")
        return span

    def _label(self, record: int, data: bytes, span: Span) -> int:
        label = varint(data[span.start : span.stop])
        if not 1 <= label <= self.classes:
            hint = "labels count from 1, and data.classes says how far; is it another data set?"
            raise DataError(f"{self.index.place(record)}: label {label}, expected 1 to {self.classes}", hint=hint)
        return label


def marked_objects(data: Buffer, features: Dict[str, Span]) -> np.ndarray:
    """The boxes of the marked objects of an image."""
    columns: List[np.ndarray] = []
    for span in (features.get(name) for name in BOX):
        if span is None or span.kind != "floats":
            return np.empty((0, 4))
        columns.append(np.frombuffer(data, "<f4", (span.stop - span.start) // 4, span.start))
    return np.array(list(zip(*columns))).reshape(-1, 4)
