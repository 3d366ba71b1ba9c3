"""Synthetic pictures that show their class by colour, direction of stripes, and place of a spot."""

from __future__ import annotations

from typing import NamedTuple, Tuple

import numpy as np

_SPOT_RADIUS = 0.14  # of the shorter side
_RING_RADIUS = 0.3  # where the spots of the classes lie, around the middle


class Box(NamedTuple):
    """The rectangle around the spot, as shares of width and height."""

    xmin: float
    ymin: float
    xmax: float
    ymax: float


def paint(
    draw: np.random.Generator, label: int, classes: int, height: int, width: int, noise: float = 10.0
) -> Tuple[np.ndarray, Box]:
    """A picture of class `label` out of `classes`, as uint8 with three colours, and the box of its spot."""
    turn = 2 * np.pi * label / classes
    colour = 128 + 60 * np.cos(turn + np.array([0, 2, 4], np.float32) * np.pi / 3)
    side = min(height, width)
    x, y = np.arange(width, dtype=np.float32)[None, :], np.arange(height, dtype=np.float32)[:, None]
    along = np.cos(turn / 2) * x + np.sin(turn / 2) * y
    stripes = np.sin(along * (2 * np.pi * 6 / side) + draw.uniform(0, 2 * np.pi))
    shift = draw.uniform(-0.05, 0.05, 2)
    centre_x = width * (0.5 + _RING_RADIUS * np.cos(turn) + shift[0])
    centre_y = height * (0.5 + _RING_RADIUS * np.sin(turn) + shift[1])
    radius = _SPOT_RADIUS * side
    spot = np.exp(-((x - centre_x) ** 2 + (y - centre_y) ** 2) / radius**2)
    picture = (colour * draw.uniform(0.8, 1.2)).astype(np.float32) + 20 * stripes.astype(np.float32)[..., None]
    picture += spot.astype(np.float32)[..., None] * (255 - picture)
    picture += np.float32(noise) * draw.standard_normal(picture.shape, np.float32)
    box = Box(
        *np.clip([(centre_x - radius) / width, (centre_y - radius) / height], 0, 1).tolist(),
        *np.clip([(centre_x + radius) / width, (centre_y + radius) / height], 0, 1).tolist(),
    )
    return np.clip(picture, 0, 255).astype(np.uint8), box
