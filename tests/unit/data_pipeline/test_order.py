from __future__ import annotations

from typing import Callable, List

import numpy as np
import pytest

from ipulaunch.data_pipeline.order import Shuffle, epoch_order, share_of, training_ids, validation_ids, whole_updates
from ipulaunch.topology import Batch

pytestmark = pytest.mark.core


def test_an_order_that_is_not_shuffled_is_that_of_the_files() -> None:
    for epoch in (0, 3):
        assert epoch_order(9, Shuffle(7, block=2, window=2, is_on=False), epoch).tolist() == list(range(9))


def replicas_by_instance(instances: int, replicas: int) -> List[range]:
    local = replicas // instances
    return [range(i * local, (i + 1) * local) for i in range(instances)]


def test_order_is_a_permutation() -> None:
    assert sorted(epoch_order(1000, Shuffle(1), 2)) == list(range(1000))


def test_order_depends_on_seed_and_epoch_alone() -> None:
    first = epoch_order(100, Shuffle(1), 2)
    assert np.array_equal(first, epoch_order(100, Shuffle(1), 2))
    assert not np.array_equal(first, epoch_order(100, Shuffle(1), 3))
    assert not np.array_equal(first, epoch_order(100, Shuffle(2), 2))


def test_order_is_the_same_on_every_stack() -> None:
    assert epoch_order(8, Shuffle(7), 0).tolist() == [4, 1, 6, 3, 2, 7, 5, 0]


@pytest.mark.parametrize("instances", [1, 2, 4, 8])
@pytest.mark.parametrize("by_replica", [False, True])
def test_every_replica_takes_the_positions_of_the_invariant(
    instances: int, by_replica: bool, replica_slice: Callable[..., slice]
) -> None:
    batch = Batch(micro_size=3, replicas=8, accumulation=2)
    order = epoch_order(2 * batch.global_size + 5, Shuffle(0), 0)
    for replicas in replicas_by_instance(instances, batch.replicas):
        rows = iter(training_ids(order, batch, replicas, by_replica=by_replica))
        for update in range(2):
            turns = [(step, replica) for step in range(batch.accumulation) for replica in replicas]
            for step, replica in sorted(turns, key=lambda turn: turn[::-1]) if by_replica else turns:
                assert next(rows).tolist() == order[replica_slice(update, step, replica, batch)].tolist()
        assert next(rows, None) is None


@pytest.mark.parametrize("instances", [1, 2, 4, 8])
@pytest.mark.parametrize("samples", [48, 100, 131])
def test_an_epoch_takes_every_sample_once_but_for_the_remainder(instances: int, samples: int) -> None:
    batch = Batch(micro_size=2, replicas=8, accumulation=3)
    order = epoch_order(samples, Shuffle(3), 1)
    taken = [
        training_ids(order, batch, replicas, by_replica=True).ravel() for replicas in replicas_by_instance(instances, 8)
    ]
    assert len({part.size for part in taken}) == 1
    used = samples // batch.global_size * batch.global_size
    assert sorted(np.concatenate(taken)) == sorted(order[:used])


@pytest.mark.parametrize("instances", [1, 2, 4])
@pytest.mark.parametrize("samples", [1, 7, 8, 9, 24, 25])
def test_validation_weighs_every_sample_once_and_padding_nothing(instances: int, samples: int) -> None:
    batch = Batch(micro_size=2, replicas=4, accumulation=5)
    weight_of = np.zeros(samples)
    steps = set()
    for replicas in replicas_by_instance(instances, 4):
        ids, weights = validation_ids(samples, batch, replicas)
        np.add.at(weight_of, ids.ravel(), weights.ravel())
        steps.add(len(ids))
    assert weight_of.tolist() == [1] * samples
    assert len(steps) == 1


@pytest.mark.parametrize("samples", [1, 5, 47, 48, 49, 100])
@pytest.mark.parametrize("remainder", ["drop", "repeat", "pad"])
def test_an_epoch_is_whole_updates(samples: int, remainder: str) -> None:
    batch = Batch(micro_size=2, replicas=8, accumulation=3)
    order, weights = whole_updates(samples, Shuffle(3), 1, batch, remainder)
    assert len(order) == len(weights) and len(order) % batch.global_size == 0
    own = epoch_order(samples, Shuffle(3), 1)
    kept = min(samples, len(order))
    assert order[:kept].tolist() == own[:kept].tolist() and set(weights[:kept]) <= {1.0}
    filled = order[samples:]
    if remainder == "drop":
        assert len(filled) == 0
    elif remainder == "repeat":
        assert filled.tolist() == np.resize(epoch_order(samples, Shuffle(3), 2), len(filled)).tolist()
        assert weights.sum() == len(order)
    else:
        assert weights.sum() == samples


@pytest.mark.parametrize("samples", [1, 7, 64, 100, 1001])
@pytest.mark.parametrize(("block", "window"), [(4, 1), (8, 3), (1000, 2)])
def test_a_two_level_order_is_a_permutation_too(samples: int, block: int, window: int) -> None:
    order = epoch_order(samples, Shuffle(5, block, window), epoch=2)
    assert sorted(order) == list(range(samples))
    assert samples == 1 or order.tolist() != epoch_order(samples, Shuffle(5, block, window), epoch=3).tolist()


def test_a_window_reads_whole_blocks() -> None:
    order = epoch_order(1000, Shuffle(0, block=10, window=4), epoch=0)
    for start in range(0, 1000, 40):
        window = order[start : start + 40]
        assert len({number // 10 for number in window}) == 4
        assert (np.diff(window) == 1).sum() < 20  # mixed, not four runs one after the other


@pytest.mark.parametrize("remainder", ["drop", "repeat", "pad"])
@pytest.mark.parametrize("samples", [48, 49, 95, 100, 131])
@pytest.mark.parametrize("shares", [1, 2, 4])
def test_a_host_takes_the_samples_of_its_share_alone_and_each_of_them_once(
    shares: int, samples: int, remainder: str
) -> None:
    batch = Batch(micro_size=2, replicas=8, accumulation=3)
    order, weights = whole_updates(samples, Shuffle(3, shares=shares), 1, batch, remainder)
    assert len(order) % batch.global_size == 0 and len(order) == len(weights)
    taken = []
    for number, replicas in enumerate(replicas_by_instance(shares, batch.replicas)):
        mine = training_ids(order, batch, replicas, by_replica=False).ravel()
        real = mine[training_ids(weights, batch, replicas, by_replica=False).ravel() > 0]
        assert set(mine.tolist()) <= set(share_of(samples, shares, number))
        taken += real.tolist()
    if remainder == "drop":
        assert len(set(taken)) == len(taken) == samples // batch.global_size * batch.global_size
    elif remainder == "pad":
        assert sorted(taken) == list(range(samples))
    else:
        assert set(taken) == set(range(samples))


def test_shares_are_shuffled_each_in_its_own_way_and_anew_in_each_epoch() -> None:
    def halves(epoch: int) -> List[List[int]]:
        order, _ = whole_updates(64, Shuffle(3, shares=2), epoch, Batch(1, 2, 1), "drop")
        return [order[::2].tolist(), (order[1::2] - 32).tolist()]

    assert len({tuple(half) for epoch in range(2) for half in halves(epoch)}) == 4
