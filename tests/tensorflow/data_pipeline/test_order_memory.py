"""What the order of an epoch takes in memory, for sets of many samples."""

from __future__ import annotations

import tracemalloc
from typing import Any, Callable, List, Tuple

import numpy as np
import pytest

from ipulaunch.data_pipeline import order, stream
from ipulaunch.data_pipeline.order import Shuffle, epoch_order, id_type, training_ids, validation_ids, whole_updates
from ipulaunch.data_pipeline.sources.source import ArraySource
from ipulaunch.topology import Batch

SAMPLES = 300_000
BATCH = Batch(micro_size=4, replicas=2, accumulation=2)
ALONE = range(2)
SECOND = range(1, 2)


def bytes_a_sample(make: Callable[[], Any]) -> Tuple[float, float]:
    """What is held of what was made, and the most that was held at a time."""
    make()  # what is held for good is made the first time
    tracemalloc.start()
    try:
        made = make()
        held, peak = tracemalloc.get_traced_memory()
        del made
    finally:
        tracemalloc.stop()
    return held / SAMPLES, peak / SAMPLES


@pytest.mark.parametrize(("remainder", "most"), [("drop", 4.1), ("repeat", 4.1), ("pad", 8.1)])
def test_an_epoch_is_held_in_four_bytes_a_sample(remainder: str, most: float) -> None:
    held, _ = bytes_a_sample(lambda: whole_updates(SAMPLES, Shuffle(1), 0, BATCH, remainder))
    assert held <= most


def test_windows_are_mixed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed() -> np.ndarray:
        return epoch_order(SAMPLES, Shuffle(1, block=10, window=3), 0)

    all_at_once = mixed()
    monkeypatch.setattr(order, "_MIXED_AT_ONCE", 1000)
    assert mixed().tolist() == all_at_once.tolist()
    _, peak = bytes_a_sample(mixed)
    assert peak < 12


@pytest.mark.parametrize("replicas", [ALONE, SECOND], ids=["alone", "one of two"])
def test_validation_is_held_in_eight_bytes_a_sample(replicas: range) -> None:
    held, _ = bytes_a_sample(lambda: validation_ids(SAMPLES, BATCH, replicas))
    assert held <= 8.1 * len(replicas) / 2


@pytest.mark.parametrize(
    ("most", "kind"), [(0, np.int32), (2**31 - 1, np.int32), (2**31, np.int64), (2**40, np.int64)], ids=str
)
def test_numbers_are_as_wide_as_they_must_be(most: int, kind: Any) -> None:
    assert id_type(most) is kind


class Counted(ArraySource):
    """Samples that are their own number."""

    samples = 35
    inputs, targets = (np.int64, ()), (np.int64, ())

    def load(self, ids: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        assert ids.dtype == np.int64
        return ids, ids


@pytest.mark.parametrize("remainder", ["drop", "repeat", "pad"])
def test_the_order_of_an_epoch_is_computed_once(remainder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs: List[int] = []

    def computed(samples: int, shuffle: Shuffle, epoch: int, *more: Any) -> Any:
        epochs.append(epoch)
        return whole_updates(samples, shuffle, epoch, *more)

    monkeypatch.setattr(stream, "whole_updates", computed)
    list(
        stream.training_stream(
            Counted(), BATCH, ALONE, shuffle=Shuffle(1), updates=range(4), by_replica=True, threads=1,
            remainder=remainder,
        )
    )  # fmt: skip
    assert epochs == [0, 1]


def test_a_set_of_billions_is_streamed_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def streamed() -> List[List[int]]:
        found = stream.training_stream(
            Counted(), BATCH, ALONE, shuffle=Shuffle(1, 3, 2), updates=range(4), by_replica=True, threads=1
        )
        return [ids.numpy().tolist() for ids, _ in found]

    narrow = streamed()
    monkeypatch.setattr(order, "id_type", lambda most: np.int64)
    assert streamed() == narrow


@pytest.mark.parametrize("by_replica", [True, False])
@pytest.mark.parametrize("replicas", [ALONE, SECOND], ids=["alone", "one of two"])
@pytest.mark.parametrize(("samples", "start"), [(35, 0), (35, 2), (35, 4), (32, 1), (3, 1)])
def test_padding_weighs_nothing_in_any_epoch(samples: int, start: int, replicas: range, by_replica: bool) -> None:
    source = Counted()
    source.samples = samples
    updates = range(start, 7)
    found = stream.training_stream(
        source, BATCH, replicas, shuffle=Shuffle(1), updates=updates, by_replica=by_replica, threads=1, remainder="pad"
    )
    expected = []
    for epoch in range(7):
        parts = whole_updates(samples, Shuffle(1), epoch, BATCH, "pad")
        expected.append(
            np.stack([training_ids(part, BATCH, replicas, by_replica=by_replica) for part in parts], axis=1)
        )
    rows = np.concatenate(expected)
    per_update = len(replicas) * BATCH.accumulation
    assert [[ids.numpy().tolist(), weights.numpy().tolist()] for ids, _, weights in found] == rows[
        start * per_update : updates.stop * per_update
    ].tolist()
