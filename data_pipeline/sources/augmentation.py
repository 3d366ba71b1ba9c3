"""Random crops and flips, each a function of (seed, epoch, sample) alone.

A run that resumes, even with another number of instances, sees the same pixels. All draws come from Philox's raw
stream, which numpy promises to keep; the epoch's order takes the same keys with the counter's upper words at 0.
"""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

_AREA = (0.08, 1.0)  # of the image
_ASPECT = (3 / 4, 4 / 3)  # width over height
_LEAST_COVERED = 0.1  # of an object; a crop that shows less of every object is drawn again
_ATTEMPTS = 100
_AT_A_TIME = 16

Box = Tuple[float, float, float, float]  # top, left, bottom, right, as parts of the image
_WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


class Window(NamedTuple):
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


class Draws:
    """Numbers in [0, 1) for one sample in one epoch, and after `restart` for another one."""

    def __init__(self, seed: int, epoch: int, sample: int) -> None:
        key, counter = np.array([seed, epoch], np.uint64), np.array([0, 0, sample, 1], np.uint64)
        self.bits = np.random.Philox(key=key, counter=counter)
        self.state: Any = self.bits.state
        self.drawn: List[float] = []

    def restart(self, sample: int) -> None:
        """Draw for this sample from now on; a new object would take 20 microseconds instead of 2."""
        self.state["state"]["counter"][2] = sample
        self.bits.state = self.state
        self.drawn = []

    def take(self, count: int) -> List[float]:
        """The next numbers. Drawn several at a time: NumPy's calls cost more than its numbers."""
        while len(self.drawn) < count:
            self.drawn += [(raw >> 11) * 2.0**-53 for raw in self.bits.random_raw(_AT_A_TIME).tolist()]
        numbers, self.drawn = self.drawn[:count], self.drawn[count:]
        return numbers


def epoch_draws(samples: int, count: int, seed: int, epoch: int) -> np.ndarray:
    """`count` numbers in [0, 1) for every sample of a small set."""
    key, counter = np.array([seed, epoch], np.uint64), np.array([0, 0, 0, 2], np.uint64)
    raw = np.random.Philox(key=key, counter=counter).random_raw(samples * count)
    numbers: np.ndarray = (raw >> np.uint64(11)) * 2.0**-53
    return numbers.reshape(samples, count)


def random_window(draws: Draws, height: int, width: int, objects: Optional[Sequence[Box]] = None) -> Window:
    """A crop of random place, size and shape that shows part of an object, if objects are marked.

    The aspect is drawn first, then the height among those that keep the area in bounds, as TensorFlow's own op draws
    them. The whole image, if it is too narrow for any such crop.
    """
    for _ in range(_ATTEMPTS):
        a, b, c, d = draws.take(4)
        aspect = _ASPECT[0] + a * (_ASPECT[1] - _ASPECT[0])
        least, most = (math.sqrt(part * height * width / aspect) for part in _AREA)
        most = min(most, height, width / aspect)
        if least > most:
            continue
        tall = max(1, round(least + b * (most - least)))
        wide = min(width, max(1, round(tall * aspect)))
        window = Window(int(c * (height - tall + 1)), int(d * (width - wide + 1)), tall, wide)
        if any(_covered(window, box, height, width) >= _LEAST_COVERED for box in objects or (_WHOLE,)):
            return window
    return Window(0, 0, height, width)


def _covered(window: Window, box: Box, height: int, width: int) -> float:
    """The part of an object that a window shows."""
    top, left, bottom, right = box[0] * height, box[1] * width, box[2] * height, box[3] * width
    tall = min(bottom, window.top + window.height) - max(top, window.top)
    wide = min(right, window.left + window.width) - max(left, window.left)
    area = (bottom - top) * (right - left)
    return max(0.0, tall) * max(0.0, wide) / area if area > 0 else 0.0
