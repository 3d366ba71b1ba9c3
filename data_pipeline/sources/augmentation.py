"""Random crops and flips, each a function of (seed, epoch, sample) alone, drawn for many samples at once.

A run that resumes, even with another number of instances, sees the same pixels. All draws come from Philox's raw
stream, which numpy promises to keep; the epoch's order takes the same keys with the counter's upper words at 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

import numpy as np

_AREA = (0.08, 1.0)  # of the image
_ASPECT = (3 / 4, 4 / 3)  # width over height
_LEAST_COVERED = 0.1  # of an object; a crop that shows less of every object is drawn again
_ATTEMPTS = (0, 1, 4, 20, 100)  # the first one alone, as it nearly always succeeds; then several at a time

Box = Tuple[float, float, float, float]  # top, left, bottom, right, as parts of the image
_WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


class Objects(NamedTuple):
    """The marked objects of some images: their boxes, and for each box the place of its image among these."""

    boxes: np.ndarray  # [boxes, 4]
    images: np.ndarray

    def among(self, places: np.ndarray, images: int) -> Objects:
        """The objects of the images at these places, out of so many; an image without any is an object as a whole."""
        renumbered = np.full(images, -1)
        renumbered[places] = np.arange(len(places))
        numbers = renumbered[self.images]
        found = numbers >= 0
        bare = np.setdiff1d(np.arange(len(places)), numbers)
        boxes = np.concatenate([self.boxes[found], np.tile(np.array(_WHOLE), (len(bare), 1))])
        return Objects(boxes, np.concatenate([numbers[found], bare]))


class Draws:
    """Numbers in [0, 1) of samples in one epoch."""

    def __init__(self, seed: int, epoch: int) -> None:
        key, counter = np.array([seed, epoch], np.uint64), np.array([0, 0, 0, 1], np.uint64)
        self.bits = np.random.Philox(key=key, counter=counter)
        self.state: Any = self.bits.state

    def first(self, count: int, samples: np.ndarray) -> np.ndarray:
        """The first numbers of each sample: a row for each."""
        raw = np.empty((len(samples), count), np.uint64)
        for row, sample in enumerate(samples.tolist()):
            self.state["state"]["counter"][2] = sample
            self.bits.state = self.state  # a new object would take 20 microseconds instead of one
            raw[row] = self.bits.random_raw(count)
        numbers: np.ndarray = (raw >> np.uint64(11)) * 2.0**-53
        return numbers


def epoch_draws(samples: int, count: int, seed: int, epoch: int) -> np.ndarray:
    """`count` numbers in [0, 1) for every sample of a small set."""
    key, counter = np.array([seed, epoch], np.uint64), np.array([0, 0, 0, 2], np.uint64)
    raw = np.random.Philox(key=key, counter=counter).random_raw(samples * count)
    numbers: np.ndarray = (raw >> np.uint64(11)) * 2.0**-53
    return numbers.reshape(samples, count)


def flips_and_windows(
    draws: Draws, samples: np.ndarray, heights: np.ndarray, widths: np.ndarray, objects: Optional[Objects] = None
) -> Tuple[np.ndarray, np.ndarray]:
    """Whether to flip each sample's image, and the part of it to show: top, left, height and width in pixels.

    A part is a crop of random place, size and shape that shows some of an object, if objects are marked. The aspect is
    drawn first, then the height among those that keep the area in bounds, as TensorFlow's own op draws them. The whole
    image, if it is too narrow for any such crop.
    """
    objects = objects or Objects(np.empty((0, 4)), np.empty(0, np.int64))
    flips = np.empty(len(samples), bool)
    windows = np.stack([np.zeros_like(heights), np.zeros_like(heights), heights, widths], axis=1)
    waiting = np.arange(len(samples))
    for first, last in zip(_ATTEMPTS, _ATTEMPTS[1:]):
        attempts = last - first
        numbers = draws.first(1 + 4 * last, samples[waiting])
        flips[waiting] = numbers[:, 0] < 0.5
        height, width = heights[waiting].repeat(attempts), widths[waiting].repeat(attempts)
        found, is_sound = _windows(numbers[:, 1 + 4 * first :].reshape(-1, 4), height, width)
        mine = objects.among(waiting, len(samples))
        tries = (mine.images[:, None] * attempts + np.arange(attempts)).ravel()
        is_sound &= _shows_enough(found, height, width, Objects(mine.boxes.repeat(attempts, axis=0), tries))
        is_sound = is_sound.reshape(-1, attempts)
        has_one = is_sound.any(axis=1)
        best = np.arange(len(waiting)) * attempts + is_sound.argmax(axis=1)
        windows[waiting[has_one]] = found[best[has_one]]
        waiting = waiting[~has_one]
        if not len(waiting):
            break
    return flips, windows


def _windows(numbers: np.ndarray, height: np.ndarray, width: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """The windows that four numbers each stand for, and whether there is one."""
    a, b, c, d = numbers.T
    aspect = _ASPECT[0] + a * (_ASPECT[1] - _ASPECT[0])
    least, most = (np.sqrt(part * height * width / aspect) for part in _AREA)
    most = np.minimum(np.minimum(most, height), width / aspect)
    tall = np.maximum(1, np.rint(least + b * (most - least)))
    wide = np.minimum(width, np.maximum(1, np.rint(tall * aspect)))
    windows = np.stack([c * (height - tall + 1), d * (width - wide + 1), tall, wide], axis=1).astype(np.int64)
    return windows, least <= most


def _shows_enough(windows: np.ndarray, height: np.ndarray, width: np.ndarray, objects: Objects) -> np.ndarray:
    """Whether each window shows enough of an object of its image."""
    with np.errstate(all="ignore"):  # anybody may have written the boxes
        shown = _shown(windows[objects.images], height[objects.images], width[objects.images], objects.boxes)
    enough = np.zeros(len(windows), bool)
    enough[objects.images[shown >= _LEAST_COVERED]] = True
    return enough


def _shown(windows: np.ndarray, height: np.ndarray, width: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """The part of each object that a window shows."""
    top, left, bottom, right = boxes.T.astype(np.float64) * np.stack([height, width, height, width])
    tall = np.minimum(bottom, windows[:, 0] + windows[:, 2]) - np.maximum(top, windows[:, 0])
    wide = np.minimum(right, windows[:, 1] + windows[:, 3]) - np.maximum(left, windows[:, 1])
    area = (bottom - top) * (right - left)
    part: np.ndarray = np.maximum(0.0, tall) * np.maximum(0.0, wide) / area
    return np.where(area > 0, part, 0.0)
