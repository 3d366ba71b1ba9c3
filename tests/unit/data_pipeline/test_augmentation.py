"""Crops and flips of many samples at once, beside an implementation that draws for one after the other."""

from __future__ import annotations

import math
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np
import pytest

from ipulaunch.data_pipeline.sources.augmentation import Draws, Objects, flips_and_windows

Box = Tuple[float, float, float, float]  # top, left, bottom, right
Window = Tuple[int, int, int, int]  # top, left, height, width


def numbers_of(seed: int, epoch: int, sample: int) -> Iterator[float]:
    """The numbers of one sample, as they have always been drawn."""
    counter = np.array([0, 0, sample, 1], np.uint64)
    bits = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=counter)
    while True:
        yield (int(bits.random_raw()) >> 11) * 2.0**-53


def covered(window: Window, box: Box, height: int, width: int) -> float:
    top, left, bottom, right = box[0] * height, box[1] * width, box[2] * height, box[3] * width
    tall = min(bottom, window[0] + window[2]) - max(top, window[0])
    wide = min(right, window[1] + window[3]) - max(left, window[1])
    area = (bottom - top) * (right - left)
    return max(0.0, tall) * max(0.0, wide) / area if area > 0 else 0.0


def one_after_the_other(numbers: Iterator[float], height: int, width: int, boxes: Sequence[Box]) -> Tuple[bool, Window]:
    flip = next(numbers) < 0.5
    for _ in range(100):
        a, b, c, d = (next(numbers) for _ in range(4))
        aspect = 3 / 4 + a * (4 / 3 - 3 / 4)
        least, most = (math.sqrt(part * height * width / aspect) for part in (0.08, 1.0))
        most = min(most, height, width / aspect)
        if least > most:
            continue
        tall = max(1, round(least + b * (most - least)))
        wide = min(width, max(1, round(tall * aspect)))
        window = (int(c * (height - tall + 1)), int(d * (width - wide + 1)), tall, wide)
        if any(covered(window, box, height, width) >= 0.1 for box in boxes or [(0.0, 0.0, 1.0, 1.0)]):
            return flip, window
    return flip, (0, 0, height, width)


def drawn(
    samples: Sequence[int],
    sizes: Sequence[Tuple[int, int]],
    boxes: Optional[Sequence[Sequence[Box]]] = None,
    seed: int = 0,
    epoch: int = 0,
) -> Tuple[List[bool], List[Window]]:
    heights, widths = np.array(sizes).reshape(-1, 2).T
    objects = None
    if boxes is not None:
        flat = [box for each in boxes for box in each]
        images = [image for image, each in enumerate(boxes) for _ in each]
        objects = Objects(np.array(flat, np.float32).reshape(-1, 4), np.array(images, np.int64))
    flips, windows = flips_and_windows(Draws(seed, epoch), np.array(samples), heights, widths, objects)
    return flips.tolist(), [tuple(window) for window in windows.tolist()]


def many(count: int, seed: int) -> Tuple[List[int], List[Tuple[int, int]], List[List[Box]]]:
    """Samples of all sizes, a third of them without objects, some with objects that hardly a crop shows."""
    draw = np.random.RandomState(seed)
    samples = draw.randint(0, 2**40, count).tolist()
    sizes = [(int(height), int(width)) for height, width in draw.randint(1, 700, (count, 2))]
    boxes: List[List[Box]] = []
    for number in range(count):
        found = np.sort(draw.rand(number % 3, 2, 2), axis=1).reshape(-1, 4).astype(np.float32)
        if number % 5 == 0:
            found[:, 2:] = found[:, :2] + np.float32(0.01)
        if number % 50 == 1:
            found[:] = 0  # of no size
        boxes.append([(float(a), float(b), float(c), float(d)) for a, b, c, d in found])
    return samples, sizes, boxes


@pytest.mark.parametrize("seed", range(3))
def test_many_samples_at_once_are_drawn_as_one_after_the_other(seed: int) -> None:
    samples, sizes, boxes = many(400, seed)
    flips, windows = drawn(samples, sizes, boxes, seed=seed, epoch=seed + 1)
    expected = [
        one_after_the_other(numbers_of(seed, seed + 1, sample), *size, objects)
        for sample, size, objects in zip(samples, sizes, boxes)
    ]
    assert list(zip(flips, windows)) == expected


def test_a_sample_is_drawn_the_same_in_any_company() -> None:
    samples, sizes, boxes = many(40, 7)
    together = drawn(samples, sizes, boxes)
    alone = [drawn([sample], [size], [objects]) for sample, size, objects in zip(samples, sizes, boxes)]
    assert together == ([flips[0] for flips, _ in alone], [windows[0] for _, windows in alone])


def test_nothing_is_drawn_for_no_samples() -> None:
    assert drawn([], []) == ([], [])


def test_boxes_that_are_no_numbers_do_no_harm() -> None:
    nan, inf = float("nan"), float("inf")
    _, windows = drawn([1, 2], [(20, 30)] * 2, [[(nan, nan, nan, nan)], [(-inf, 0.0, inf, 1.0), (0.0, 0.0, 1.0, 1.0)]])
    assert windows[0] == (0, 0, 20, 30) and windows[1][2] <= 20


def test_crops_keep_to_the_bounds_of_area_and_aspect() -> None:
    for top, left, height, width in drawn(range(2000), [(375, 500)] * 2000)[1]:
        assert 0 <= top <= 375 - height and 0 <= left <= 500 - width
        assert 0.079 <= height * width / (375 * 500) <= 1
        assert 0.74 <= width / height <= 1.35


def test_crops_are_spread_over_image_and_sizes() -> None:
    windows = np.array(drawn(range(2000), [(400, 400)] * 2000)[1])
    middle = windows[:, :2] + windows[:, 2:] / 2
    assert np.abs(middle.mean(axis=0) - 200).max() < 6
    assert windows[:, 2].min() < 130 and windows[:, 2].max() > 380


def test_crops_show_a_tenth_of_an_object_where_objects_are_marked() -> None:
    boxes: List[List[Box]] = [[(0.9, 0.9, 1.0, 1.0)]] * 300
    for top, left, height, width in drawn(range(300), [(200, 200)] * 300, boxes)[1]:
        shown = max(0, top + height - 180) * max(0, left + width - 180)
        assert shown >= 0.1 * 20 * 20


def test_an_image_too_narrow_for_any_crop_is_taken_whole() -> None:
    assert drawn([0], [(10, 1000)])[1] == [(0, 0, 10, 1000)]


def test_draws_are_the_same_on_every_stack() -> None:
    assert Draws(1, 2).first(2, np.array([3])).tolist() == [[0.7392729637493114, 0.1727219477163251]]


def test_first_numbers_are_the_first_of_more() -> None:
    samples = np.array([3, 4, 3])
    few, more = Draws(1, 2).first(5, samples), Draws(1, 2).first(40, samples)
    assert few.tolist() == more[:, :5].tolist() and more[0].tolist() == more[2].tolist() != more[1].tolist()
