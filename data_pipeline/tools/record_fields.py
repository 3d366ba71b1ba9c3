"""The expected fields of a record, for each of the published sets."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Tuple

import numpy as np

from ipulaunch.data_pipeline.records.example import NotAnExample, Span, find_features
from ipulaunch.data_pipeline.records.pixels import FORMAT
from ipulaunch.data_pipeline.sources.image_header import ImageHeader, NotAnImage, read_header, require_end

CHANNELS, TARGETS, CLASSES = 4, 4, 1000
_BOX = tuple(f"image/object/bbox/{side}" for side in ("xmin", "xmax", "ymin", "ymax"))


class Findings(NamedTuple):
    """What is wrong with a record, what is odd, and the form it has, which all records of a set may have to share."""

    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    form: str = ""


def check_record(kind: str, data: bytes) -> Findings:
    """Check one record of a set of this kind."""
    try:
        features = find_features(data)
    except NotAnExample as error:
        return Findings((f"not a tf.train.Example: {error}",))
    return _CHECKS[kind](data, features)


def _check_volume(data: bytes, features: Dict[str, Span]) -> Findings:
    problems: List[str] = []
    form = ""
    volume, targets = features.get("x"), features.get("y")
    if volume is None or volume.kind != "bytes":
        problems.append(_instead("x", "bytes", volume))
    else:
        size = volume.stop - volume.start
        side = round((size / (2 * CHANNELS)) ** (1 / 3))
        if side < 1 or side**3 * 2 * CHANNELS != size:
            problems.append(f"x has {size} bytes, which is not an int16 volume [S, S, S, {CHANNELS}]")
        else:
            form = f"{side} x {side} x {side} x {CHANNELS}"
    if targets is None or targets.kind != "floats":
        problems.append(_instead("y", f"{TARGETS} floats", targets))
        return Findings(tuple(problems), (), form)
    values = _floats(data, targets)
    if len(values) != TARGETS:
        problems.append(f"y has {len(values)} floats, expected {TARGETS}")
    elif not np.isfinite(values).all():
        problems.append(f"y is {values.tolist()}, expected finite numbers")
    outside = len(values) == TARGETS and bool((np.abs(values) > 1).any())
    return Findings(tuple(problems), ("targets outside [-1, 1]",) if outside else (), form)


def _check_image(data: bytes, features: Dict[str, Span]) -> Findings:
    problems: List[str] = []
    notes: List[str] = []
    form = ""
    encoded = features.get("image/encoded")
    if encoded is None or encoded.kind != "bytes":
        problems.append(_instead("image/encoded", "bytes", encoded))
    else:
        image = data[encoded.start : encoded.stop]
        try:
            header = read_header(image)
            require_end(image)
        except NotAnImage as error:
            problems.append(f"image/encoded is {error}")
        else:
            form = "plain pixels" if header.format == FORMAT else ""
            notes += _oddities(header)
            for name, expected in (("image/height", header.height), ("image/width", header.width)):
                said = _ints(data, features[name]) if name in features else [expected]
                if said != [expected]:
                    problems.append(f"{name} says {said}, the image {expected}")
    label = features.get("image/class/label")
    if label is None or label.kind != "ints":
        problems.append(_instead("image/class/label", "a whole number", label))
    else:
        numbers = _ints(data, label)
        if len(numbers) != 1 or not 1 <= numbers[0] <= CLASSES:
            problems.append(f"image/class/label is {numbers}, expected one number from 1 to {CLASSES}")
    problems += _check_boxes(data, features)
    return Findings(tuple(problems), tuple(notes), form)


def _oddities(header: ImageHeader) -> List[str]:
    if header.format == "PNG":
        return ["PNG, not JPEG"]
    return {1: ["grey"], 3: []}.get(header.channels, ["CMYK" if header.channels == 4 else "unusual channels"])


def _check_boxes(data: bytes, features: Dict[str, Span]) -> List[str]:
    """Boxes are optional; an empty list has no entry at all."""
    spans = [features[name] for name in _BOX if name in features and features[name].kind]
    if not spans:
        return []
    if len(spans) < len(_BOX) or any(span.kind != "floats" for span in spans):
        return [f"boxes need floats in each of {', '.join(_BOX)}"]
    sides = [_floats(data, span) for span in spans]
    if len({len(side) for side in sides}) > 1:
        return [f"boxes have {', '.join(str(len(side)) for side in sides)} values for their four sides"]
    low_x, high_x, low_y, high_y = sides
    values = np.concatenate(sides)
    if not ((values >= 0) & (values <= 1)).all() or (low_x > high_x).any() or (low_y > high_y).any():
        return ["a box does not lie inside its image"]
    return []


def _instead(name: str, expected: str, span: object) -> str:
    if not isinstance(span, Span):
        return f"there is no feature {name}"
    return f"{name} holds {span.kind or 'nothing'}, expected {expected}"


def _floats(data: bytes, span: Span) -> np.ndarray:
    return np.frombuffer(data, "<f4", (span.stop - span.start) // 4, span.start)


def _ints(data: bytes, span: Span) -> List[int]:
    numbers, value, shift = [], 0, 0
    for byte in data[span.start : span.stop]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value - (1 << 64) if value >> 63 else value)
            value = shift = 0
    return numbers


_CHECKS = {"cosmoflow": _check_volume, "imagenet": _check_image}
