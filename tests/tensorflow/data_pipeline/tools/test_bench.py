from __future__ import annotations

import functools
import gzip
import itertools
import re
from pathlib import Path
from typing import Any, Iterator, List, Sequence, Tuple

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError, SettingsError
from ipulaunch.data_pipeline.tools.bench import PIPELINES, Task, core_shares
from ipulaunch.data_pipeline.tools.bench_pipelines import open_pipelines
from ipulaunch.data_pipeline.tools.new_set import encode_example, write_records


@pytest.mark.parametrize(
    ("cores", "instances", "shares"),
    [
        ([0, 1], 1, [(0, 1)]),
        ([0, 1], 2, [(0,), (1,)]),
        ([4, 5, 9], 2, [(4,), (5, 9)]),
        ([0, 1], 3, [(0,), (1,), (0,)]),
    ],
)
def test_instances_share_the_cores(cores: List[int], instances: int, shares: List[Tuple[int, ...]]) -> None:
    assert core_shares(cores, instances) == shares


def volumes(directory: Path, packed: Sequence[int] = ()) -> None:
    (directory / "train").mkdir()
    for number in range(3):
        volume = np.full((8, 8, 8, 4), number + 1, np.int16)
        record = encode_example({"x": volume.tobytes(), "y": np.zeros(4, np.float32)})
        path = directory / "train" / f"{number}.tfrecord"
        write_records(path, [record] * (number + 1))
        if number in packed:
            path.write_bytes(gzip.compress(path.read_bytes()))


def pictures(directory: Path, count: int = 40) -> None:
    encoded = tf.io.encode_jpeg(np.zeros((30, 40, 3), np.uint8)).numpy()
    records = [
        encode_example({"image/encoded": encoded, "image/class/label": [label]}) for label in range(1, count + 1)
    ]
    write_records(directory / "train-00000-of-00001", records)


@pytest.mark.parametrize(
    ("workload", "make", "size"),
    [
        ("cosmoflow", volumes, 1),
        ("cosmoflow", functools.partial(volumes, packed=range(3)), 1),
        ("cosmoflow", functools.partial(volumes, packed=[1]), 1),
        ("imagenet", pictures, 16),
    ],
    ids=["volumes", "packed volumes", "some packed", "pictures"],
)
def test_every_pipeline_delivers_without_end(workload: str, make: Any, size: int, tmp_path: Path) -> None:
    make(tmp_path)
    opened = open_pipelines(Task(workload, str(tmp_path), 0, 1, (0,)))
    pipelines = opened.pipelines
    assert set(pipelines) == set(PIPELINES) and 0 < opened.record_mb < 1
    for name in ("ours", "reference"):
        batches = pipelines[name]()
        assert [next(batches) for _ in range(8)] == [size] * 8
    limit = pipelines["limit"]()
    assert sum(next(limit) for _ in range(12)) >= 12


def test_a_set_that_is_not_there_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no train-NNNNN-of-NNNNN files"):
        open_pipelines(Task("imagenet", str(tmp_path), 0, 1, (0,)))


def test_a_set_that_is_too_small_for_a_batch_is_refused_as_a_training_would(tmp_path: Path) -> None:
    pictures(tmp_path, 20)
    pipelines = open_pipelines(Task("imagenet", str(tmp_path), 0, 2, (0,))).pipelines
    with pytest.raises(SettingsError, match="20 training samples") as caught:
        next(pipelines["ours"]())
    assert caught.value.hint and caught.value.exit_code == 6


def damage(path: Path) -> None:
    """Change the last bytes of a file, which are data and checksum of its last record."""
    path.write_bytes(path.read_bytes()[:-30] + b"\xff" * 30)


@pytest.mark.parametrize(
    ("workload", "make", "file", "place"),
    [
        ("cosmoflow", volumes, "train/2.tfrecord", "record 2 at byte "),
        ("imagenet", pictures, "train-00000-of-00001", "record 39 at byte "),
    ],
)
def test_a_damaged_set_is_named(workload: str, make: Any, file: str, place: str, tmp_path: Path) -> None:
    make(tmp_path)
    damage(tmp_path / file)
    pipelines = open_pipelines(Task(workload, str(tmp_path), 0, 1, (0,))).pipelines
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / file}, {place}")):
        exhaust(pipelines["ours"]())
    with pytest.raises(DataError, match=re.escape(f"{tmp_path} cannot be read: ")) as caught:
        exhaust(pipelines["reference"]())
    assert caught.value.hint == f"ipulaunch data verify {tmp_path} says where"


def exhaust(batches: Iterator[int]) -> None:
    for _ in itertools.islice(batches, 40):
        pass


def test_a_record_without_an_image_is_named(tmp_path: Path) -> None:
    write_records(tmp_path / "train-00000-of-00001", [encode_example({"image/class/label": [1]})] * 16)
    pipelines = open_pipelines(Task("imagenet", str(tmp_path), 0, 1, (0,))).pipelines
    for name in PIPELINES:
        with pytest.raises(DataError):
            next(pipelines[name]())
