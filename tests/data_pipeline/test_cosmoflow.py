from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.cosmoflow import CosmoflowData
from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.cosmoflow import CosmoflowRecords
from ipulaunch.data_pipeline.order import Shuffle, epoch_order, training_ids
from ipulaunch.data_pipeline.source import data_errors
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place

CosmoflowSet = Callable[..., Path]


def records(directory: Path, **settings: Any) -> CosmoflowRecords:
    data = CosmoflowData(data_dir=str(directory), **{"n_train": 10**6, "side": 2, **settings})
    return CosmoflowRecords(data, "train", threads=2)


@pytest.mark.parametrize("packed", [(), (0, 2)], ids=["plain", "gzip among them"])
def test_samples_are_what_was_written(packed: Any, cosmoflow_set: CosmoflowSet) -> None:
    source = records(cosmoflow_set([2, 0, 3, 1], packed=packed))
    assert source.samples == 6
    volumes, targets = source.load(np.array([5, 0, 3]))
    assert volumes.dtype == np.int16 and volumes.shape == (3, 2, 2, 2, 4)
    assert [set(volume.ravel()) for volume in volumes] == [{5}, {0}, {3}]
    assert targets.tolist() == [[5.0] * 4, [0.0] * 4, [3.0] * 4]


def test_batches_need_no_copy_on_their_way_to_tensorflow(cosmoflow_set: CosmoflowSet) -> None:
    volumes, targets = records(cosmoflow_set([3])).load(np.array([0, 1, 2]))
    assert volumes.ctypes.data % 64 == 0 and targets.ctypes.data % 64 == 0


def test_fields_in_another_order_are_read_too(cosmoflow_set: CosmoflowSet, write: Any) -> None:
    directory = cosmoflow_set([1])
    first = (directory / "train" / "part-00000.tfrecord").read_bytes()[12:-4]
    entry = first[2:] if first[1] < 0x80 else first[3:]
    # The two entries of the map, the other way round: a valid Example of the same length.
    size = 2 + entry[1] if entry[1] < 0x80 else 3 + (entry[1] & 0x7F) + (entry[2] << 7)
    swapped = first[: len(first) - len(entry)] + entry[size:] + entry[:size]
    write("train/part-00001.tfrecord", [swapped])
    volumes, targets = records(directory).load(np.array([1]))
    assert set(volumes.ravel()) == {0} and set(targets.ravel()) == {0.0}


@pytest.mark.parametrize("counts", [[24], [5, 7, 1, 11], [1] * 24, [0, 23, 0, 1]], ids=str)
@pytest.mark.parametrize("instances", [1, 2, 4, 8])
def test_an_epoch_is_every_sample_once_in_the_same_global_order(
    counts: List[int], instances: int, cosmoflow_set: CosmoflowSet
) -> None:
    batch = Batch(micro_size=1, replicas=8, accumulation=3)
    source = records(cosmoflow_set(counts))
    seen: List[int] = []
    for instance in range(instances):
        local = batch.replicas // instances
        place = Place(instance, instances, instance, instances, instance * local, local, batch.replicas, 1)
        stream = training_stream(
            source, batch, place, shuffle=Shuffle(1), updates=range(1), by_replica=False, threads=2
        )
        mine = [int(volume.numpy().flat[0]) for volume, _ in stream]
        assert mine == training_ids(epoch_order(24, Shuffle(1), 0), batch, place, by_replica=False).ravel().tolist()
        seen += mine
    assert sorted(seen) == list(range(24))


def test_a_limit_takes_the_first_records(cosmoflow_set: CosmoflowSet) -> None:
    assert records(cosmoflow_set([3, 3]), n_train=4).samples == 4


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda make, write: make([0]), "hold no record"),
        (lambda make, write: Path("/nonexistent"), "there are no *.tfrecord files in /nonexistent/train"),
        (lambda make, write: write("train/a.tfrecord", [b"\xff\xff"]).parents[1], "not a tf.train.Example"),
        (lambda make, write: write("train/a.tfrecord", [b""]).parents[1], "there is no feature x"),
    ],
    ids=["empty", "absent", "noise", "no features"],
)
def test_what_is_no_cosmoflow_set_is_refused(make: Any, said: str, cosmoflow_set: CosmoflowSet, write: Any) -> None:
    with pytest.raises(DataError) as caught:
        records(make(cosmoflow_set, write))
    assert said in caught.value.message


def test_another_shape_is_refused_with_both_sizes(cosmoflow_set: CosmoflowSet) -> None:
    with pytest.raises(DataError, match=r"record 0 at byte 12: x is 64 bytes of bytes, expected 512 bytes"):
        records(cosmoflow_set([1]), side=4)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-30] + b"\xff" * 30), "wrong checksum"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "of .* bytes are there"),
        (lambda path: path.unlink(), "No such file"),
    ],
    ids=["changed", "shrunk", "vanished"],
)
def test_data_that_goes_bad_in_the_run_ends_as_a_data_error(harm: Any, said: str, cosmoflow_set: CosmoflowSet) -> None:
    directory = cosmoflow_set([2, 2])
    source = records(directory)
    harm(directory / "train" / "part-00001.tfrecord")
    alone = Place(0, 1, 0, 1, 0, 1, 1, 1)
    stream = training_stream(
        source, Batch(1, 1, 1), alone, shuffle=Shuffle(0), updates=range(4), by_replica=True, threads=1
    )
    with pytest.raises(DataError, match=said) as caught, data_errors(source):
        list(stream)
    assert f"{directory}/train/part-00001.tfrecord, record " in caught.value.message


@pytest.mark.parametrize("bad", [0, 2, 3], ids=["the first", "one in the middle", "the last"])
def test_a_bad_record_can_be_replaced_by_its_neighbour(bad: int, cosmoflow_set: CosmoflowSet) -> None:
    directory = cosmoflow_set([1, 1, 1, 1])
    path = directory / "train" / f"part-0000{bad}.tfrecord"
    path.write_bytes(path.read_bytes()[:-30] + b"\xff" * 30)
    source = records(directory, bad_records="skip")
    numbers = tf.data.Dataset.from_tensor_slices((np.zeros(2, np.int64), np.array([[0, 1], [2, 3]])))
    taken = [int(number) for _, targets in source.dataset(numbers, 2, 1) for number in targets.numpy()[:, 0]]
    assert taken == [(bad + 1) % 4 if number == bad else number for number in range(4)]
    assert list(source.bad) == [bad] and f"{path}, record 0" in source.bad[bad].message


def test_a_set_of_bad_records_is_not_replaced_for_ever(cosmoflow_set: CosmoflowSet) -> None:
    directory = cosmoflow_set([3])
    source = records(directory, bad_records="skip")
    (directory / "train" / "part-00000.tfrecord").unlink()
    numbers = tf.data.Dataset.from_tensor_slices((np.zeros(1, np.int64), np.array([[0]])))
    with pytest.raises(DataError, match="in a row from number 0 on cannot be read"), data_errors(source):
        list(source.dataset(numbers, 1, 1))
