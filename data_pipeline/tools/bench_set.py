"""Small sets to measure on: CosmoFlow's volumes one to a file, ImageNet's pictures at their usual size."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict

import numpy as np

from ipulaunch.data_pipeline.parallel import Progress, Report, cores, in_order
from ipulaunch.data_pipeline.tools.new_set import encode_example, generator, write_records
from ipulaunch.data_pipeline.tools.pictures import paint

_SIDE, _VOLUMES = 128, 24  # 400 MB: more than any cache of a processor, little enough for the page cache
_NAMES = 10  # links to each volume: in an epoch of 24 samples, a fifth of the time goes into starting epochs
_HEIGHT, _WIDTH = 375, 500
_PICTURES, _PICTURE_FILES, _CLASSES = 512, 8, 1000
_JPEG_QUALITY = 96  # about the 110 kB that one of ImageNet's takes


def make(workload: str, directory: Path, report: Report) -> None:
    """Write the training files of a set."""
    _KINDS[workload](directory, report)


def _volumes(directory: Path, report: Report) -> None:
    progress = Progress(report, "volumes", _VOLUMES)
    (directory / "train").mkdir()

    def write(number: int) -> None:
        draw = generator(0, "train", number)
        volume = draw.integers(0, 100, (_SIDE, _SIDE, _SIDE, 4), np.int16)
        record = encode_example({"x": volume.tobytes(), "y": draw.random(4, np.float32)})
        first, *others = (directory / "train" / f"part-{name}-{number:05}.tfrecord" for name in range(_NAMES))
        write_records(first, [record])
        for other in others:
            other.symlink_to(first.name)
        progress.add()

    for _ in in_order(write, range(_VOLUMES), cores(), progress):
        pass


def _pictures(directory: Path, report: Report) -> None:
    import tensorflow as tf

    progress = Progress(report, "pictures", _PICTURES)

    def record(number: int) -> bytes:
        draw = generator(0, "train", number)
        label = int(draw.integers(_CLASSES))
        pixels, box = paint(draw, label, _CLASSES, _HEIGHT, _WIDTH)
        sides = {f"image/object/bbox/{side}": np.array([value]) for side, value in box._asdict().items()}
        encoded: bytes = tf.io.encode_jpeg(pixels, quality=_JPEG_QUALITY).numpy()
        progress.add()
        return encode_example({"image/encoded": encoded, "image/class/label": [label + 1], **sides})

    def write(file: int) -> None:
        numbers = range(file, _PICTURES, _PICTURE_FILES)
        write_records(directory / f"train-{file:05}-of-{_PICTURE_FILES:05}", map(record, numbers))

    for _ in in_order(write, range(_PICTURE_FILES), cores(), progress):
        pass


_KINDS: Dict[str, Callable[[Path, Report], None]] = {"cosmoflow": _volumes, "imagenet": _pictures}
