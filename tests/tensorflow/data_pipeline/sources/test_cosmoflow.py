from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import pytest
import tensorflow as tf

from ipulaunch.configs.errors import DataError
from ipulaunch.configs.settings.cosmoflow import CosmoflowData
from ipulaunch.data_pipeline.order import Shuffle, epoch_order, training_ids
from ipulaunch.data_pipeline.sources.cosmoflow import CosmoflowRecords
from ipulaunch.data_pipeline.sources.source import data_errors
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.data_pipeline.tools.new_set import encode_example
from ipulaunch.topology import Batch

CosmoflowSet = Callable[..., Path]


def records(directory: Path, **settings: Any) -> CosmoflowRecords:
    data = CosmoflowData(directory=str(directory), **{"n_train": 10**6, "side": 2, **settings})
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


def test_records_with_further_fields_of_any_length_are_read_too(write: Any, tmp_path: Path) -> None:
    rows = [
        encode_example({"x": np.full(32, n, np.int16).tobytes(), "y": np.full(4, n, np.float32), "name": b"n" * n})
        for n in (1, 2, 30)
    ]
    write("train/part-00000.tfrecord", rows)
    volumes, targets = records(tmp_path).load(np.array([2, 1, 0]))
    assert [set(volume.ravel()) for volume in volumes] == [{30}, {2}, {1}]
    assert targets.tolist() == [[30.0] * 4, [2.0] * 4, [1.0] * 4]


@pytest.mark.parametrize(
    ("counts", "instances"), [([24], 1), ([5, 7, 1, 11], 4), ([1] * 24, 8), ([0, 23, 0, 1], 2)], ids=str
)
def test_an_epoch_is_every_sample_once_in_the_same_global_order(
    counts: List[int], instances: int, cosmoflow_set: CosmoflowSet
) -> None:
    batch = Batch(micro_size=1, replicas=8, accumulation=3)
    source = records(cosmoflow_set(counts))
    seen: List[int] = []
    for instance in range(instances):
        local = batch.replicas // instances
        replicas = range(instance * local, (instance + 1) * local)
        stream = training_stream(
            source, batch, replicas, shuffle=Shuffle(1), updates=range(1), by_replica=False, threads=2
        )
        mine = [int(volume.numpy().flat[0]) for volume, _ in stream]
        assert mine == training_ids(epoch_order(24, Shuffle(1), 0), batch, replicas, by_replica=False).ravel().tolist()
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
    with pytest.raises(DataError, match=r"record 0 at byte 0: x is 64 bytes, expected 512 bytes") as caught:
        records(cosmoflow_set([1]), side=4)
    assert caught.value.hint == "use --side 2 --n-conv-layers 1, as the set has this size"
    with pytest.raises(DataError) as caught:
        records(cosmoflow_set([1]), side=2, channels=3)
    assert caught.value.hint == "data.side and data.channels must be those of the set"


def encode(side: int = 2, targets: int = 4, value: float = 0.0) -> bytes:
    volume = np.zeros((side, side, side, 4), np.int16)
    return encode_example({"x": volume.tobytes(), "y": np.full(targets, value, np.float32)})


def test_one_odd_record_does_not_ask_for_another_side(cosmoflow_set: CosmoflowSet, write: Any) -> None:
    directory = cosmoflow_set([1])
    for number, odd in enumerate((encode(side=4), encode(targets=3)), 1):
        write(f"train/part-0000{number}.tfrecord", [odd])
        with pytest.raises(DataError, match=f"part-0000{number}.tfrecord, record 0 at byte 0: . is ") as caught:
            records(directory).load(np.array([0, number]))
        assert caught.value.hint.startswith("other records are as expected; ")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_targets_that_are_not_finite_are_a_defect_of_their_record(
    value: float, cosmoflow_set: CosmoflowSet, write: Any
) -> None:
    directory = cosmoflow_set([3])
    path = write("train/part-00001.tfrecord", [encode(), encode(value=value)])
    with pytest.raises(DataError, match=rf"part-00001\.tfrecord, record 1 at byte \d+: y is \[{value}, ") as caught:
        records(directory).load(np.array([0, 4]))
    assert "--bad-records skip" in caught.value.hint
    source = records(directory, bad_records="skip")
    numbers = tf.data.Dataset.from_tensor_slices((np.zeros(1, np.int64), np.array([[2, 4]])))
    ((_, targets),) = source.dataset(numbers, 2, 1)
    assert targets.numpy().tolist() == [[2.0] * 4, [0.0] * 4]
    assert list(source.bad) == [4] and f"{path}, record 1" in source.bad[4].message


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
    alone = range(1)
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


def read_by_number(source: CosmoflowRecords, numbers: List[int]) -> List[int]:
    """The numbers that the samples say which are read for these."""
    rows = tf.data.Dataset.from_tensor_slices((np.zeros(len(numbers), np.int64), np.array(numbers)[:, None]))
    with data_errors(source):
        return [int(targets.numpy()[0, 0]) for _, targets in source.dataset(rows, 1, 1)]


def cut(path: Path) -> None:
    """Leave two of the records, if they are not packed."""
    path.write_bytes(path.read_bytes()[:250])


@pytest.mark.parametrize(
    ("harm", "packed", "read"),
    [
        (Path.unlink, (), [1, 272, 272, 272, 272, 272, 272, 272, 272]),
        (Path.unlink, (1, 3), [1, 272, 272, 272, 272, 272, 272, 272, 272]),
        (cut, (), [1, 2, 3, 152, 152, 152, 153, 272, 272]),
        (cut, (1, 3), [1, 272, 272, 272, 272, 272, 272, 272, 272]),
    ],
    ids=["vanished", "vanished, gzip", "shrunk", "shrunk, gzip"],
)
def test_a_file_that_is_lost_in_the_run_is_replaced_by_the_first_record_of_the_next(
    harm: Any, packed: Any, read: List[int], cosmoflow_set: CosmoflowSet
) -> None:
    directory = cosmoflow_set([2, 150, 0, 120, 3], packed=packed)
    source = records(directory, bad_records="skip")
    for file in (1, 3):
        harm(directory / "train" / f"part-0000{file}.tfrecord")
    asked = [1, 2, 3, 4, 151, 152, 153, 154, 272]
    assert read_by_number(source, asked) == read
    assert set(source.bad) == {number for number, by in zip(asked, read) if by != number}
    assert f"{directory}/train/part-00001.tfrecord" in source.bad[4].message


def test_of_a_lost_file_at_the_end_the_first_record_of_all_is_read_instead(cosmoflow_set: CosmoflowSet) -> None:
    directory = cosmoflow_set([2, 300])
    source = records(directory, bad_records="skip", n_train=200)
    (directory / "train" / "part-00001.tfrecord").unlink()
    assert read_by_number(source, [2, 150, 1, 199]) == [0, 0, 1, 0]


@pytest.mark.parametrize("counts", [[3], [1] * 150], ids=["one file", "many files"])
def test_a_set_of_bad_records_is_not_replaced_for_ever(counts: List[int], cosmoflow_set: CosmoflowSet) -> None:
    directory = cosmoflow_set(counts)
    source = records(directory, bad_records="skip")
    for path in (directory / "train").glob("*.tfrecord"):
        path.unlink()
    with pytest.raises(DataError) as caught:
        read_by_number(source, [1])
    file, record = (0, 1) if counts == [3] else (1, 0)
    tried = 2 if counts == [3] else 100
    said = rf"/part-0000{file}\.tfrecord, record {record} at byte \d+: No such file or directory; {tried} samples tried"
    assert re.search(said, caught.value.message)
    assert caught.value.hint == "the files must stay as they are during a run"
    assert len(source.bad) == tried
