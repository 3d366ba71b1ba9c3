"""ImageNet's training images from planned samples: read, checked, decoded, cropped and scaled in one call for many.

Python does next to nothing for an image: it makes about ten calls, and those that take long (reading, the checksum,
decoding, scaling) let other threads run meanwhile. simplejpeg decodes an image down to the last row of its crop, by
telling the decoder that the image ends there. Its pixels are those of TensorFlow's decoder on the whole image;
TensorFlow's own op for crops differs from them in the columns at the edge of a crop, where it lacks the neighbours.

Measured for an image of 500 x 375 in 112 kB, processor time relative to the conventional pipeline's in the same run:
TensorFlow's op for crops on images in memory 0.73, this decoder 0.77, the whole pipeline 0.97, before with TensorFlow's
op 0.93. What it buys is the interpreter's time and the first batch, not the time of a core.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ipulaunch.data_pipeline.sources import image_decoding
from ipulaunch.data_pipeline.sources.augmentation import Draws, Objects, flips_and_windows
from ipulaunch.data_pipeline.sources.imagenet_plan import PlannedSample
from ipulaunch.data_pipeline.sources.imagenet_samples import SampleReader, Workspace

_ROWS_BELOW = 8  # of an image that are decoded below its crop: pixels depend on their neighbours


class TrainingImages:
    """Makes images of planned samples, `side` pixels high and wide."""

    def __init__(self, samples: SampleReader, *, seed: int, side: int) -> None:
        self.samples, self.seed, self.size = samples, seed, (side, side)
        self.opencv, self.decode = image_decoding.opencv(), image_decoding.jpeg_decoder()

    def make(self, epoch: int, sample: PlannedSample, image: np.ndarray, workspace: Workspace) -> int:
        """Put a sample's image into this memory; returns its label."""
        if self.samples.is_odd(sample):
            return self._make_odd(epoch, sample.record, image)
        crop = self.crop(sample, self.samples.encoded(sample, workspace), workspace)
        if crop is None:
            return self._make_odd(epoch, sample.record, image)
        self._scale(crop, sample.flip, image)
        return sample.label

    def crop(self, sample: PlannedSample, encoded: np.ndarray, workspace: Workspace) -> Optional[np.ndarray]:
        """The pixels of a sample's window, in memory of the workspace; None if the quick decoder does not take it.

        It changes the height in the encoded image.
        """
        rows, last, place = sample.height, sample.top + sample.tall + _ROWS_BELOW, sample.height_place
        if place and last < rows:
            rows = last
            encoded[place], encoded[place + 1] = rows >> 8, rows & 0xFF
        shape = (rows, sample.width, image_decoding.CHANNELS)
        try:
            pixels = self.decode(encoded, workspace.room_for_pixels(rows * sample.width * image_decoding.CHANNELS))
        except ValueError:  # TensorFlow's decoder says whether it is damaged
            return None
        if pixels.shape != shape:  # anybody may have written an index beside a data set
            return None
        return pixels[sample.top : sample.top + sample.tall, sample.left : sample.left + sample.wide]

    def _make_odd(self, epoch: int, record: int, image: np.ndarray) -> int:
        sample = self.samples.read(record)
        size = np.array([sample.header.height]), np.array([sample.header.width])
        objects = Objects(sample.boxes, np.zeros(len(sample.boxes), np.int64))
        (flip,), (window,) = flips_and_windows(Draws(self.seed, epoch), np.array([record]), *size, objects)
        try:
            crop = image_decoding.crop(sample.encoded, sample.header.format, window)
        except image_decoding.Undecodable as error:
            raise self.samples.undecodable(record, str(error)) from error
        self._scale(crop, flip, image)
        return sample.label

    def _scale(self, crop: np.ndarray, flip: Any, image: np.ndarray) -> None:
        self.opencv.resize(crop, self.size, dst=image, interpolation=self.opencv.INTER_LINEAR)
        if flip:
            self.opencv.flip(image, 1, dst=image)
