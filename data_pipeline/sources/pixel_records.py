"""ImageNet prepared as plain pixels: the same samples, crops and flips as from JPEGs, with nothing to decode."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, List, NamedTuple, Sequence, Type

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.records.example import NotAnExample, find_features
from ipulaunch.data_pipeline.records.pixels import FORMAT
from ipulaunch.data_pipeline.records.tfrecord import HEADER
from ipulaunch.data_pipeline.sources.image_decoding import CHANNELS, SHORTER_SIDE, SIDE, opencv
from ipulaunch.data_pipeline.sources.image_header import NotAnImage, require_end
from ipulaunch.data_pipeline.sources.imagenet import ImagenetRecords
from ipulaunch.data_pipeline.sources.imagenet_images import TrainingImages
from ipulaunch.data_pipeline.sources.imagenet_plan import PlannedSample
from ipulaunch.data_pipeline.sources.imagenet_samples import SampleReader, Workspace

_HEAD = 4096  # bytes of a record, in which its small features lie


class Head(NamedTuple):
    """What the first record of a set says: the form of its images, and how they were prepared."""

    form: str = ""
    preparation: str = ""


def image_records(data_dir: Path, split: str, *, files: Sequence[Path], **options: Any) -> ImagenetRecords:
    """The source for the form of these files: encoded images, or plain pixels."""
    head = first_head(files)
    kind: Type[ImagenetRecords] = PixelRecords if head.form == FORMAT else ImagenetRecords
    source = kind(data_dir, split, files=files, **options)
    source.preparation = head.preparation
    return source


def first_head(files: Sequence[Path]) -> Head:
    """The head of the first record; an empty one if the set does not say it, or is damaged."""
    for path in files:
        try:
            with path.open("rb") as file:
                start = file.read(HEADER + _HEAD)
        except OSError:
            continue
        if len(start) > HEADER:
            return _head(start[HEADER:], struct.unpack_from("<Q", start)[0])
    return Head()


def _head(start: bytes, length: int) -> Head:
    try:
        features = find_features(start, length)
    except NotAnExample:
        return Head()
    words: List[str] = []
    for span in (features.get("image/format"), features.get("image/preparation")):
        value = start[span.start : span.stop] if span is not None and span.kind == "bytes" else b""
        text = value.decode("utf-8", "replace")
        words.append(text if text.isprintable() else "")
    return Head(*words)


class PixelRecords(ImagenetRecords):
    """Samples of a split, fetched by number, cropped, flipped if `augment`, and scaled to `side` x `side` pixels."""

    def __init__(self, data_dir: Path, split: str, **options: Any) -> None:
        super().__init__(data_dir, split, **options)
        self.training = PixelImages(self.reader, seed=options["seed"], side=self.side, augment=self.augment)

    def _validated(self, planned: tf.data.Dataset, size: int, threads: int, parts: int, fields: int) -> tf.data.Dataset:
        return self._trained(planned, size, threads, parts, fields)

    def _require_decodable(self, record: int) -> None:
        """There is nothing to decode."""


class PixelImages(TrainingImages):
    """Makes images of planned samples: with `augment`, of their windows; without, of their centres."""

    def __init__(self, samples: SampleReader, *, seed: int, side: int, augment: bool) -> None:
        # Not those of encoded images: it needs no decoder, and OpenCV only to scale crops.
        self.samples, self.seed, self.size = samples, seed, (side, side)
        self.augment, self.side, self.opencv = augment, side, opencv() if augment else None

    def make(self, epoch: int, sample: PlannedSample, image: np.ndarray, workspace: Workspace) -> int:
        if self.samples.is_odd(sample):
            raise self._defect(sample.record)
        pixels = self._pixels(sample, self.samples.encoded(sample, workspace))
        if self.augment:
            crop = pixels[sample.top : sample.top + sample.tall, sample.left : sample.left + sample.wide]
            self._scale(crop, sample.flip, image)
        else:
            image[...] = self._centre(pixels)
        return sample.label

    def crop(self, sample: PlannedSample, encoded: np.ndarray, workspace: Workspace) -> np.ndarray:
        """The pixels of a sample's window."""
        pixels = self._pixels(sample, encoded)
        return pixels[sample.top : sample.top + sample.tall, sample.left : sample.left + sample.wide]

    def _pixels(self, sample: PlannedSample, encoded: np.ndarray) -> np.ndarray:
        shape, start = (sample.height, sample.width, CHANNELS), sample.height_place
        # Anybody may have written an index beside a data set.
        if encoded[:start].tobytes() != b"P6\n%d %d\n255\n" % (sample.width, sample.height):
            raise self._defect(sample.record)
        return encoded[start:].reshape(shape)

    def _centre(self, pixels: np.ndarray) -> Any:
        """The centre of the image scaled as validation scales it; one that has this size already is only cut."""
        height, width, _ = pixels.shape
        shorter = round(self.side * SHORTER_SIDE / SIDE)
        size = [side * shorter // min(height, width) for side in (height, width)]
        top, left = ((each - self.side) // 2 for each in size)
        if size != [height, width]:
            scaled = tf.raw_ops.ResizeBilinear(images=pixels[None], size=size, half_pixel_centers=True)[0]
            pixels = (scaled.numpy() + np.float32(0.5)).astype(np.uint8)
        return pixels[top : top + self.side, left : left + self.side]

    def _defect(self, record: int) -> DataError:
        """What is wrong with a record whose pixels cannot be taken as they lie."""
        place, hint = self.samples.index.place(record), "all images of a set are plain pixels, or none is"
        try:
            sample = self.samples.read(record)
            require_end(sample.encoded)
        except NotAnImage as error:
            return DataError(f"{place}: image/encoded is {error}")
        except DataError as error:
            return error
        if sample.header.format != FORMAT:
            return DataError(f"{place}: image/encoded is a {sample.header.format}, expected a {FORMAT}", hint=hint)
        return DataError(f"{place}: its pixels are not where the index has them", hint="remove .ipulaunch-index.npz")
