from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import pytest

from ipulaunch.data_pipeline.order import Shuffle, epoch_order, training_ids, validation_ids
from ipulaunch.data_pipeline.source import ArraySource
from ipulaunch.data_pipeline.stream import training_stream, validation_stream
from ipulaunch.topology import Batch
from ipulaunch.topology.popdist import Place

pytestmark = pytest.mark.core

BATCH = Batch(micro_size=2, replicas=4, accumulation=2)
PLACE = Place(1, 2, 1, 2, 2, 2, 4, 1)


class Numbers(ArraySource):
    """Samples that are their own number."""

    samples = 35
    inputs, targets = (np.int16, (1,)), (np.float32, (1,))

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        return ids.astype(np.int16)[:, None], ids.astype(np.float32)[:, None]


def seen(stream: Any) -> List[List[int]]:
    return [inputs.numpy().ravel().tolist() for inputs, *_ in stream]


def test_training_stream_is_the_order_of_every_epoch_in_turn() -> None:
    stream = training_stream(Numbers(), BATCH, PLACE, shuffle=Shuffle(5), updates=range(6), by_replica=True, threads=2)
    expected: List[List[int]] = []
    for epoch in range(3):
        expected += training_ids(epoch_order(35, Shuffle(5), epoch), BATCH, PLACE, by_replica=True).tolist()
    assert seen(stream) == expected


@pytest.mark.parametrize("start", range(7))
def test_a_stream_can_begin_at_any_update(start: int) -> None:
    def rows(updates: range) -> List[List[int]]:
        stream = training_stream(
            Numbers(), BATCH, PLACE, shuffle=Shuffle(5), updates=updates, by_replica=True, threads=1
        )
        return seen(stream)

    assert rows(range(start, 7)) == rows(range(7))[4 * start :]  # 2 replicas x 2 steps an update


def test_validation_stream_carries_the_weights() -> None:
    stream = validation_stream(Numbers(), BATCH, PLACE, threads=2)
    ids, weights = validation_ids(35, BATCH, PLACE)
    assert seen(stream) == ids.tolist()
    assert [w.numpy().tolist() for *_, w in stream] == weights.tolist()


def test_micro_batches_have_a_fixed_shape() -> None:
    stream = training_stream(Numbers(), BATCH, PLACE, shuffle=Shuffle(5), updates=range(2), by_replica=False, threads=1)
    assert [tuple(spec.shape) for spec in stream.element_spec] == [(2, 1), (2, 1)]
