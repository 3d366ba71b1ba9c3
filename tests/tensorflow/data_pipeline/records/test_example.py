from __future__ import annotations

import random

import pytest
import tensorflow as tf

from ipulaunch.data_pipeline.records.example import NotAnExample, find_features


def feature(**lists: object) -> tf.train.Feature:
    return tf.train.Feature(**lists)


RECORD = tf.train.Example(
    features=tf.train.Features(
        feature={
            "image/encoded": feature(bytes_list=tf.train.BytesList(value=[b"jpeg" * 100])),
            "y": feature(float_list=tf.train.FloatList(value=[1.5, -2.0])),
            "image/class/label": feature(int64_list=tf.train.Int64List(value=[300])),
            "empty": feature(bytes_list=tf.train.BytesList(value=[])),
        }
    )
).SerializeToString()


def test_values_are_found_where_they_lie() -> None:
    found = find_features(RECORD)
    assert set(found) == {"image/encoded", "y", "image/class/label", "empty"}
    image, floats, label = found["image/encoded"], found["y"], found["image/class/label"]
    assert RECORD[image.start : image.stop] == b"jpeg" * 100 and image.kind == "bytes"
    assert RECORD[floats.start : floats.stop] == b"\x00\x00\xc0\x3f\x00\x00\x00\xc0" and floats.kind == "floats"
    assert RECORD[label.start : label.stop] == b"\xac\x02" and label.kind == "ints"
    assert found["empty"].start == found["empty"].stop


@pytest.mark.parametrize("damage", ["cut", "flipped", "random"])
def test_damaged_bytes_never_do_worse_than_not_an_example(damage: str) -> None:
    draw = random.Random(0)
    for _ in range(2000):
        data = bytearray(RECORD)
        if damage == "cut":
            data = data[: draw.randrange(len(data))]
        elif damage == "flipped":
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            data = bytearray(draw.randrange(256) for _ in range(draw.randrange(64)))
        try:
            found = find_features(bytes(data))
        except NotAnExample:
            continue
        assert all(0 <= span.start <= span.stop <= len(data) for span in found.values())
