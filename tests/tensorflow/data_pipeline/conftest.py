from __future__ import annotations

from pathlib import Path
from typing import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

Write = Callable[..., Path]


def example(number: int, side: int = 2, channels: int = 4, targets: int = 4) -> bytes:
    """A CosmoFlow record that says its own number in every voxel and target."""
    volume = np.full((side, side, side, channels), number, np.int16).tobytes()
    features = {
        "x": tf.train.Feature(bytes_list=tf.train.BytesList(value=[volume])),
        "y": tf.train.Feature(float_list=tf.train.FloatList(value=[number] * targets)),
    }
    record: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return record


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes records to a file with TensorFlow's own writer."""

    def write(name: str, records: Sequence[bytes], packed: bool = False) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tf.io.TFRecordWriter(str(path), "GZIP" if packed else "") as writer:
            for record in records:
                writer.write(record)
        return path

    return write


@pytest.fixture
def cosmoflow_set(write: Write, tmp_path: Path) -> Callable[..., Path]:
    """A data set whose files have the given numbers of records; every record says its number."""

    def make(counts: Sequence[int], packed: Sequence[int] = (), split: str = "train") -> Path:
        first = 0
        for file, count in enumerate(counts):
            records = [example(number) for number in range(first, first + count)]
            write(f"{split}/part-{file:05}.tfrecord", records, packed=file in packed)
            first += count
        return tmp_path

    return make
