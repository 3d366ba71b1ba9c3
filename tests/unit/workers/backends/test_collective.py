"""Sums over instances, with threads in place of processes and queues in place of MPI."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipulaunch.workers.backends.collective import Collective, OverMpi, texts_of

LONGEST_S = 60  # bounds a hang


class Communicator:
    """The calls of mpi4py that a collective makes, for one of several threads."""

    def __init__(self, rank: int, size: int, mail: Dict[Tuple[int, int], queue.Queue[Any]]) -> None:
        self.rank, self.size, self.mail = rank, size, mail

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Sendrecv(self, values: np.ndarray, dest: int, recvbuf: np.ndarray, source: int) -> None:
        self.mail[self.rank, dest].put(values.copy())
        recvbuf[...] = self.mail[source, self.rank].get(timeout=LONGEST_S)

    def Allgather(self, values: np.ndarray, found: np.ndarray) -> None:
        for other in range(self.size):
            self.mail[self.rank, other].put(values.copy())
        for other in range(self.size):
            found[other] = self.mail[other, self.rank].get(timeout=LONGEST_S)

    def Allreduce(self, values: np.ndarray, found: np.ndarray) -> None:
        rows = np.empty((self.size, *values.shape), values.dtype)
        self.Allgather(values, rows)
        found[...] = rows.sum(axis=0)

    def Bcast(self, buffer: bytearray, root: int) -> None:
        if self.rank == root:
            for other in range(self.size):
                self.mail[root, other].put(bytes(buffer))
        buffer[:] = self.mail[root, self.rank].get(timeout=LONGEST_S)


def on_each(size: int, work: Callable[[Collective, int], Any]) -> List[Any]:
    """What the work returns on each of so many instances."""
    mail: Dict[Tuple[int, int], queue.Queue[Any]] = {
        (source, dest): queue.Queue() for source in range(size) for dest in range(size)
    }
    with ThreadPoolExecutor(size) as pool:
        waiting = [pool.submit(work, OverMpi(Communicator(rank, size, mail)), rank) for rank in range(size)]
        return [one.result(timeout=LONGEST_S) for one in waiting]


def sum_in_pairs(values: List[np.ndarray]) -> np.ndarray:
    """Pairs, then pairs of pairs: the brackets of one instance that holds all replicas."""
    while len(values) > 1:
        values = [first + second for first, second in zip(values[::2], values[1::2])]
    return values[0]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_instances_sum_in_pairs_to_the_last_bit(size: int) -> None:
    rows = list(np.random.default_rng(7).normal(size=(size, 1000)).astype(np.float32))
    expected = sum_in_pairs(rows)
    assert (expected != sum(rows[1:], rows[0])).any() or size == 2  # else the order would not show
    for found in on_each(size, lambda collective, rank: collective.sum(rows[rank])):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [3, 6])
def test_any_number_of_instances_has_the_sum(size: int) -> None:
    for found in on_each(size, lambda collective, rank: collective.sum(np.array([rank, 1.0]))):
        np.testing.assert_array_equal(found, [sum(range(size)), size])


def test_every_instance_has_the_rows_of_all() -> None:
    for found in on_each(4, lambda collective, rank: collective.rows(np.array([rank, -rank]))):
        np.testing.assert_array_equal(found, [[0, 0], [1, -1], [2, -2], [3, -3]])


def test_every_instance_has_the_first_text() -> None:
    assert on_each(4, lambda collective, rank: collective.first(f"größe {rank}")) == ["größe 0"] * 4


def test_every_instance_has_all_texts() -> None:
    texts = ["", "a", "länger", "b" * 100]
    assert on_each(4, lambda collective, rank: texts_of(collective, texts[rank])) == [texts] * 4
