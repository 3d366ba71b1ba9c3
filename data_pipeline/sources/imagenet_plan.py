"""What is known of a sample before anything is read: where its image lies, its label, and its crop."""

from __future__ import annotations

from typing import NamedTuple, Tuple

import numpy as np

from ipulaunch.data_pipeline.records.index import Index
from ipulaunch.data_pipeline.sources.augmentation import Draws, Objects, flips_and_windows
from ipulaunch.data_pipeline.sources.imagenet_contents import Pictures

Drawn = Tuple[np.ndarray, np.ndarray]  # flips and windows


class PlannedSample(NamedTuple):
    """A row of a plan, all of whole numbers."""

    record: int
    file: int
    length: int  # of the record
    start: int  # of the image in the record
    size: int
    label: int  # from 1
    height: int
    width: int  # 0: the record is odd, and known only after it is read
    height_place: int  # see image_header.height_place
    top: int
    left: int
    tall: int
    wide: int
    flip: int


class SamplePlanner:
    """Plans samples, many at once; with `augment`, each has a random window of its image, and may be flipped."""

    def __init__(self, index: Index, pictures: Pictures, *, seed: int, augment: bool) -> None:
        self.index, self.pictures, self.seed, self.augment = index, pictures, seed, augment

    def plan(self, epochs: np.ndarray, records: np.ndarray) -> np.ndarray:
        """A planned sample for each record [rows, samples], each row in its epoch."""
        index, pictures = self.index, self.pictures
        heights, widths = (sides[records].astype(np.int64) for sides in (pictures.heights, pictures.widths))
        flips = np.zeros(records.shape, bool)
        windows = np.stack([np.zeros_like(heights), np.zeros_like(heights), heights, widths], axis=-1)
        if self.augment:
            for epoch in np.unique(epochs):
                mine = epochs == epoch
                flips[mine], windows[mine] = self._draw(int(epoch), records[mine], heights[mine], widths[mine])
        columns = [
            records, np.searchsorted(index.firsts, records, side="right") - 1, index.lengths[records],
            pictures.starts[records], pictures.sizes[records], pictures.labels[records], heights, widths,
            pictures.height_places[records], *np.moveaxis(windows, -1, 0), flips,
        ]  # fmt: skip
        return np.stack([column.astype(np.int64, copy=False) for column in columns], axis=-1)

    def _draw(self, epoch: int, records: np.ndarray, heights: np.ndarray, widths: np.ndarray) -> Drawn:
        samples, first_boxes = records.ravel(), self.pictures.first_boxes
        starts = first_boxes[samples]
        counts = first_boxes[samples + 1] - starts
        images = np.arange(len(samples)).repeat(counts)
        boxes = np.arange(len(images)) - (np.cumsum(counts) - counts).repeat(counts) + starts.repeat(counts)
        objects = Objects(self.pictures.boxes[boxes], images)
        drawn = Draws(self.seed, epoch), samples, np.maximum(heights.ravel(), 1), np.maximum(widths.ravel(), 1)
        flips, windows = flips_and_windows(*drawn, objects)
        return flips.reshape(records.shape), windows.reshape((*records.shape, 4))
