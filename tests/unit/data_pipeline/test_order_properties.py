"""What must hold of the order of samples, for any set, any number of instances and any place to continue at."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable, List, Tuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipulaunch.data_pipeline.order import Shuffle, epoch_order, training_ids, validation_ids, whole_updates
from ipulaunch.data_pipeline.records.index import Index
from ipulaunch.topology import Batch

# The same examples in every run, so that a failure can be looked at again.
SAME = settings(derandomize=True, deadline=None, database=None, max_examples=100)


def uneven(files: int, seed: int) -> List[int]:
    """Counts of records, most of them small, some 0 and some large."""
    draw = np.random.RandomState(seed)
    return (draw.randint(0, 4, files) * draw.choice([0, 1, 1, 1, 25], files)).tolist()


seeds = st.integers(0, 2**32 - 1)
file_counts = st.one_of(
    st.builds(uneven, st.sampled_from([1, 7, 1024]), seeds),
    st.lists(st.integers(0, 40), min_size=1, max_size=7),
    st.builds(lambda files, seed, huge: [*uneven(files, seed), huge, 0], st.integers(0, 7), seeds, st.just(20000)),
).filter(any)
# Shares have tests of their own: hosts divide the replicas of a batch evenly.
shuffles = st.builds(Shuffle, seeds, st.sampled_from([1, 1, 3, 16]), st.integers(1, 4), st.booleans(), st.just(1))
instance_counts = st.integers(1, 64)


@st.composite
def batches(draw: Any) -> Tuple[Batch, int]:
    """A batch, and a number of instances that shares its replicas evenly."""
    instances = draw(instance_counts)
    replicas = instances * draw(st.integers(1, 3))
    return Batch(draw(st.integers(1, 5)), replicas, draw(st.integers(1, 3))), instances


def replicas_by_instance(batch: Batch, instances: int) -> Iterable[range]:
    local = batch.replicas // instances
    for instance in range(instances):
        yield range(instance * local, (instance + 1) * local)


def divisors(number: int) -> List[int]:
    return [part for part in range(1, number + 1) if number % part == 0]


def globally(order: np.ndarray, batch: Batch, instances: int, by_replica: bool) -> np.ndarray:
    """What all instances take, put together again as [update, step, replica, sample of the micro-batch]."""
    parts = []
    for replicas in replicas_by_instance(batch, instances):
        rows = training_ids(order, batch, replicas, by_replica=by_replica)
        inner = (len(replicas), batch.accumulation) if by_replica else (batch.accumulation, len(replicas))
        cube = rows.reshape(-1, *inner, batch.micro_size)
        parts.append(cube.swapaxes(1, 2) if by_replica else cube)
    return np.concatenate(parts, axis=2)


def index_of(counts: List[int]) -> Index:
    firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    offsets = np.concatenate([12 + np.arange(count) * 10 for count in counts]).astype(np.int64)
    paths = tuple(Path(f"part-{number}") for number in range(len(counts)))
    return Index(paths, firsts, offsets, np.full(len(offsets), 5), np.zeros(len(counts), bool), {})


@SAME
@given(file_counts, batches(), shuffles, st.integers(0, 5), st.booleans())
def test_every_sample_is_taken_once_but_for_the_remainder(
    counts: List[int], shape: Tuple[Batch, int], shuffle: Shuffle, epoch: int, by_replica: bool
) -> None:
    samples, (batch, instances) = sum(counts), shape
    order, _ = whole_updates(samples, shuffle, epoch, batch, "drop")
    parts = [
        training_ids(order, batch, replicas, by_replica=by_replica)
        for replicas in replicas_by_instance(batch, instances)
    ]
    assert len({part.shape for part in parts}) == 1  # no instance takes a step more than the others
    taken = np.sort(np.concatenate(parts, axis=None))
    assert len(taken) == samples - samples % batch.global_size
    assert len(np.unique(taken)) == len(taken) and np.isin(taken, np.arange(samples)).all()
    left_out = epoch_order(samples, shuffle, epoch)[len(taken) :]
    np.testing.assert_array_equal(np.sort(np.concatenate([taken, left_out])), np.arange(samples))


@SAME
@given(file_counts, batches(), shuffles, st.integers(0, 5), st.sampled_from(["repeat", "pad"]))
def test_with_the_remainder_filled_no_sample_is_missing(
    counts: List[int], shape: Tuple[Batch, int], shuffle: Shuffle, epoch: int, remainder: str
) -> None:
    samples, (batch, instances) = sum(counts), shape
    order, weights = whole_updates(samples, shuffle, epoch, batch, remainder)
    ids, weight = (
        np.concatenate(
            [
                training_ids(each, batch, replicas, by_replica=False)
                for replicas in replicas_by_instance(batch, instances)
            ]
        )
        for each in (order, weights)
    )
    assert ids.size == -(-samples // batch.global_size) * batch.global_size and ids.size - samples < batch.global_size
    if remainder == "pad":
        np.testing.assert_array_equal(np.sort(ids[weight == 1]), np.arange(samples))
        assert weight.sum() == samples
    else:
        np.testing.assert_array_equal(np.unique(ids), np.arange(samples))


@SAME
@given(file_counts, batches(), shuffles, st.integers(0, 5), st.booleans())
def test_the_global_order_is_the_same_for_every_number_of_instances(
    counts: List[int], shape: Tuple[Batch, int], shuffle: Shuffle, epoch: int, by_replica: bool
) -> None:
    batch, _ = shape
    order, _ = whole_updates(sum(counts), shuffle, epoch, batch, "repeat")
    for instances in divisors(batch.replicas):
        np.testing.assert_array_equal(globally(order, batch, instances, by_replica).ravel(), order)


@SAME
@given(file_counts, batches(), shuffles, st.data())
def test_a_run_that_continues_with_other_instances_goes_on_in_the_same_order(
    counts: List[int], shape: Tuple[Batch, int], shuffle: Shuffle, data: Any
) -> None:
    batch, before = shape
    after = data.draw(st.sampled_from(divisors(batch.replicas)))
    whole = [whole_updates(sum(counts), shuffle, epoch, batch, "repeat")[0] for epoch in range(2)]
    updates = sum(len(order) for order in whole) // batch.global_size
    stop = data.draw(st.integers(0, updates))
    first, second = (
        np.concatenate([globally(order, batch, instances, False) for order in whole]) for instances in (before, after)
    )
    np.testing.assert_array_equal(np.concatenate([first[:stop], second[stop:]], axis=None), np.concatenate(whole))


@SAME
@given(file_counts, shuffles, st.integers(0, 5))
def test_every_place_of_every_file_is_in_the_order_once(counts: List[int], shuffle: Shuffle, epoch: int) -> None:
    index = index_of(counts)
    order = epoch_order(index.records, shuffle, epoch)
    files = np.searchsorted(index.firsts, order, side="right") - 1
    np.testing.assert_array_equal(np.bincount(files, minlength=len(counts)), counts)
    for record in order[:20].tolist():
        place = index.place(record)
        file = int(place.path.name.split("-")[1])
        assert 0 <= place.number < counts[file] and sum(counts[:file]) + place.number == record
        assert index.file_of(record) == file and place.offset == 10 * place.number


@SAME
@given(file_counts, batches())
def test_validation_weighs_every_sample_once(counts: List[int], shape: Tuple[Batch, int]) -> None:
    samples, (batch, instances) = sum(counts), shape
    found = [validation_ids(samples, batch, replicas) for replicas in replicas_by_instance(batch, instances)]
    assert len({ids.shape for ids, _ in found}) == 1
    ids, weights = (np.concatenate(part) for part in zip(*found))
    np.testing.assert_array_equal(np.sort(ids[weights == 1]), np.arange(samples))
    assert set(np.unique(weights)) <= {0.0, 1.0} and ids.max() < samples


@pytest.mark.parametrize("files", [1, 7, 1024])
@pytest.mark.parametrize("instances", [1, 3, 64])
def test_the_named_mixes_are_among_them(files: int, instances: int) -> None:
    counts = uneven(files, 3) if files > 1 else [777]
    batch = Batch(1, instances, 1)
    order, _ = whole_updates(sum(counts), Shuffle(1), 0, batch, "drop")
    taken = globally(order, batch, instances, False)
    assert len(np.unique(taken)) == taken.size == sum(counts) // instances * instances
