"""What must hold of real streams over real files, for any mix of files, instances and places to continue at."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Any, Iterable, List, NamedTuple, Tuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ipulaunch.data_pipeline.order import Shuffle, training_ids, whole_updates
from ipulaunch.data_pipeline.records.index import open_index
from ipulaunch.data_pipeline.records.reader import RecordReader
from ipulaunch.data_pipeline.sources.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream
from ipulaunch.data_pipeline.tools.new_set import write_records
from ipulaunch.topology import Batch

# The same examples in every run, so that a failure can be looked at again.
SAME = settings(derandomize=True, deadline=None, database=None, max_examples=30)
FEW = settings(SAME, max_examples=6)  # TensorFlow takes a third of a second to make a stream


class File(NamedTuple):
    """One file of a mix."""

    records: int
    packed: bool


class Numbered(ArraySource):
    """Records that say their own numbers, read from files through the index."""

    inputs, targets = (np.int64, ()), (np.int64, ())

    def __init__(self, directory: Path, threads: int) -> None:
        super().__init__()
        self.reader = RecordReader(open_index(sorted(directory.glob("part-*")), threads=threads))
        self.samples = self.reader.index.records

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        written = [struct.unpack_from("<q", self.reader.read(int(number)))[0] for number in ids]
        return np.array(written, np.int64), ids


def write(directory: Path, files: Iterable[File]) -> None:
    first = 0
    for number, file in enumerate(files):
        # Sizes differ, so that a wrong place shows.
        records = [struct.pack("<q", n) + b"." * (n % 7) for n in range(first, first + file.records)]
        write_records(directory / f"part-{number:05}", records, packed=file.packed)
        first += file.records


def replicas_by_instance(batch: Batch, instances: int) -> Iterable[range]:
    local = batch.replicas // instances
    for instance in range(instances):
        yield range(instance * local, (instance + 1) * local)


def streamed(source: Numbered, batch: Batch, instances: int, updates: range, **how: Any) -> List[np.ndarray]:
    """What the records say that each instance takes."""
    return [
        np.concatenate([said.numpy() for said, *_ in training_stream(
            source, batch, replicas, updates=updates, by_replica=False, threads=1, **how
        )])
        for replicas in replicas_by_instance(batch, instances)
    ]  # fmt: skip


def in_global_order(parts: List[np.ndarray], batch: Batch) -> List[int]:
    """The instances' samples in the order of the update they serve: step after step, replica after replica."""
    local = batch.replicas // len(parts)
    cubes = [part.reshape(-1, batch.accumulation, local, batch.micro_size) for part in parts]
    whole: List[int] = np.concatenate(cubes, axis=2).ravel().tolist()
    return whole


mixes = st.lists(st.builds(File, st.integers(0, 9), st.booleans()), min_size=1, max_size=12).filter(
    lambda files: sum(file.records for file in files) >= 8
)
shuffles = st.builds(
    Shuffle, st.integers(0, 2**32 - 1), st.sampled_from([1, 1, 3, 16]), st.integers(1, 4), st.booleans(), st.just(1)
)


@st.composite
def shapes(draw: Any) -> Tuple[Batch, int]:
    """A batch, and a number of instances that shares its replicas evenly."""
    instances = draw(st.integers(1, 8))
    replicas = instances * draw(st.sampled_from([1, 1, 2] if instances <= 4 else [1]))
    return Batch(draw(st.sampled_from([1, 1, 2])), replicas, draw(st.sampled_from([1, 1, 2]))), instances


@SAME
@given(mixes, shapes(), shuffles, st.integers(0, 3), st.sampled_from(["drop", "repeat"]))
def test_an_epoch_of_real_files_is_every_record_once_in_the_same_order_for_all_instances(
    files: List[File], shape: Tuple[Batch, int], shuffle: Shuffle, epoch: int, remainder: str
) -> None:
    batch, instances = shape
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), files)
        parts = []
        for replicas in replicas_by_instance(batch, instances):
            source = Numbered(Path(directory), threads=2)  # each instance finds the index, and nothing else of others
            assert source.samples == sum(file.records for file in files)
            order, _ = whole_updates(source.samples, shuffle, epoch, batch, remainder)
            ids = training_ids(order, batch, replicas, by_replica=False).ravel()
            said, _ = source.load(ids)
            np.testing.assert_array_equal(said, ids)
            parts.append(said)
    assert len({len(part) for part in parts}) == 1  # no instance takes a step more than the others
    assert in_global_order(parts, batch) == order.tolist()  # which the number of instances has no part in
    seen = np.concatenate(parts).tolist()
    if remainder == "drop":
        assert len(set(seen)) == len(seen) == source.samples - source.samples % batch.global_size
    else:
        assert set(seen) == set(range(source.samples)) and len(seen) - source.samples < batch.global_size


@FEW
@given(mixes, shuffles, st.sampled_from(["drop", "repeat", "pad"]), st.data())
def test_streams_of_real_files_continue_at_any_update_with_any_number_of_instances(
    files: List[File], shuffle: Shuffle, remainder: str, data: Any
) -> None:
    batch = Batch(1, 4, 2)
    how: Any = {"shuffle": shuffle, "remainder": remainder}
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), files)
        source = Numbered(Path(directory), threads=1)
        orders = [whole_updates(source.samples, shuffle, epoch, batch, remainder)[0] for epoch in range(2)]
        expected = np.concatenate(orders).tolist()
        updates = len(expected) // batch.global_size
        stop = data.draw(st.integers(1, updates - 1))
        before, after = (data.draw(st.sampled_from([1, 2, 4])) for _ in range(2))
        first = in_global_order(streamed(source, batch, before, range(stop), **how), batch)
        source = Numbered(Path(directory), threads=1)  # as another process sees it
        second = in_global_order(streamed(source, batch, after, range(stop, updates), **how), batch)
    assert first + second == expected
