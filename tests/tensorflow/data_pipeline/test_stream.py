from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import pytest

from ipulaunch.configs.errors import DataError
from ipulaunch.data_pipeline.order import Shuffle, epoch_order, training_ids, validation_ids
from ipulaunch.data_pipeline.sources.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.topology import Batch

pytestmark = pytest.mark.core

BATCH = Batch(micro_size=2, replicas=4, accumulation=2)
REPLICAS = range(2, 4)


class Numbers(ArraySource):
    """Samples that are their own number."""

    samples = 35
    inputs, targets = (np.int16, (1,)), (np.float32, (1,))

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        return ids.astype(np.int16)[:, None], ids.astype(np.float32)[:, None]


def seen(stream: Any) -> List[List[int]]:
    return [inputs.numpy().ravel().tolist() for inputs, *_ in stream]


def test_training_stream_is_the_order_of_every_epoch_in_turn() -> None:
    stream = training_stream(
        Numbers(), BATCH, REPLICAS, shuffle=Shuffle(5), updates=range(6), by_replica=True, threads=2
    )
    expected: List[List[int]] = []
    for epoch in range(3):
        expected += training_ids(epoch_order(35, Shuffle(5), epoch), BATCH, REPLICAS, by_replica=True).tolist()
    assert seen(stream) == expected


@pytest.mark.parametrize("start", range(7))
def test_a_stream_can_begin_at_any_update(start: int) -> None:
    def rows(updates: range) -> List[List[int]]:
        stream = training_stream(
            Numbers(), BATCH, REPLICAS, shuffle=Shuffle(5), updates=updates, by_replica=True, threads=1
        )
        return seen(stream)

    assert rows(range(start, 7)) == rows(range(7))[4 * start :]  # 2 replicas x 2 steps an update


def test_validation_stream_carries_the_weights() -> None:
    stream = validation_stream(Numbers(), BATCH, REPLICAS, threads=2)
    ids, weights = validation_ids(35, BATCH, REPLICAS)
    assert seen(stream) == ids.tolist()
    assert [w.numpy().tolist() for *_, w in stream] == weights.tolist()


def test_micro_batches_have_a_fixed_shape() -> None:
    stream = training_stream(
        Numbers(), BATCH, REPLICAS, shuffle=Shuffle(5), updates=range(2), by_replica=False, threads=1
    )
    assert [tuple(spec.shape) for spec in stream.element_spec] == [(2, 1), (2, 1)]


class Damaged(Numbers):
    """Samples 3, 4 and the last cannot be read."""

    replaces_bad = True

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        if {3, 4, 34} & set(ids.tolist()):
            raise DataError("damaged")
        return super().load(ids)


@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("source", [Numbers(), Damaged()], ids=["sound", "damaged"])
def test_a_traced_stream_says_what_was_planned_and_what_was_read(source: ArraySource, remainder: str) -> None:
    stream = training_stream(
        source, BATCH, REPLICAS, shuffle=Shuffle(5), updates=range(6), by_replica=True, threads=2, remainder=remainder,
        traced=True,
    )  # fmt: skip
    instead = {3: 5, 4: 5, 34: 0} if source.replaces_bad else {}
    replaced = set()
    for inputs, _, *_, (_, planned, read) in stream:
        assert inputs.numpy().ravel().tolist() == read.numpy().tolist()
        assert read.numpy().tolist() == [instead.get(number, number) for number in planned.numpy().tolist()]
        replaced |= set(planned.numpy().tolist()) & set(instead)
    assert replaced == set(instead) == set(source.bad)


def test_only_a_traced_stream_carries_numbers() -> None:
    stream = training_stream(
        Damaged(), BATCH, REPLICAS, shuffle=Shuffle(5), updates=range(2), by_replica=True, threads=1
    )
    assert len(stream.element_spec) == 2
    assert len(list(stream)) == 8
