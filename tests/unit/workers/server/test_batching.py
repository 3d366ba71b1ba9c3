from __future__ import annotations

import threading
from concurrent.futures import wait
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import pytest

from ipulaunch.workers.server.batching import Batcher
from ipulaunch.workers.server.status import ServingError

LIMIT_S = 60.0  # only keeps a test from hanging
FOREVER_S = 1e6


def doubled(inputs: Dict[str, Any]) -> Dict[str, Any]:
    return {"output": inputs["input"] * 2}


def samples(first: int, count: int) -> Dict[str, Any]:
    return {"input": np.arange(first, first + count, dtype=np.float32).reshape(count, 1)}


class Model:
    """Notes what it is asked, and answers when it may."""

    def __init__(self) -> None:
        self.batches: List[Any] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = threading.Semaphore(0)

    def run(self, inputs: Dict[str, Any]) -> Dict[str, Any]:
        self.batches.append(inputs["input"].ravel().tolist())
        self.asked.release()
        assert self.may_answer.wait(LIMIT_S)
        return doubled(inputs)


@pytest.fixture()
def model() -> Model:
    return Model()


@pytest.fixture()
def make(model: Model) -> Iterator[Callable[..., Batcher]]:
    made: List[Batcher] = []

    def batcher(size: int, **options: Any) -> Batcher:
        made.append(Batcher(options.pop("run", model.run), size, **options))
        return made[-1]

    yield batcher
    model.may_answer.set()
    for each in made:
        each.close()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 11])
def test_answers_are_those_of_the_model_below_at_and_above_its_batch(size: int, make: Callable[..., Batcher]) -> None:
    answer = make(4).submit(samples(1, size), size).result(LIMIT_S)["output"]
    assert answer.ravel().tolist() == [2.0 * value for value in range(1, size + 1)]


def test_a_batch_that_is_not_full_is_padded_with_zeros(make: Callable[..., Batcher], model: Model) -> None:
    make(4).submit(samples(7, 3), 3).result(LIMIT_S)
    assert model.batches == [[7, 8, 9, 0]]


def test_requests_share_a_batch_and_run_when_it_is_full(make: Callable[..., Batcher], model: Model) -> None:
    batcher = make(4, timeout_s=FOREVER_S)
    answers = [batcher.submit(samples(10 * number, 2), 2) for number in (1, 2)]
    assert [answer.result(LIMIT_S)["output"].ravel().tolist() for answer in answers] == [[20, 22], [40, 42]]
    assert model.batches == [[10, 11, 20, 21]]


def test_a_large_request_is_split_and_its_rest_shares_a_batch_with_the_next(
    make: Callable[..., Batcher], model: Model
) -> None:
    batcher = make(4, timeout_s=FOREVER_S, threads=1)
    first, second = batcher.submit(samples(1, 6), 6), batcher.submit(samples(100, 2), 2)
    assert first.result(LIMIT_S)["output"].ravel().tolist() == [2, 4, 6, 8, 10, 12]
    assert second.result(LIMIT_S)["output"].ravel().tolist() == [200, 202]
    assert model.batches == [[1, 2, 3, 4], [5, 6, 100, 101]]


def test_a_request_that_is_too_large_is_refused(make: Callable[..., Batcher]) -> None:
    with pytest.raises(ServingError, match=r"^Task size 1025 is larger than maximum input batch size 1024$") as caught:
        make(4).submit(samples(0, 1025), 1025)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_a_full_queue_refuses_and_takes_requests_again_later(make: Callable[..., Batcher], model: Model) -> None:
    model.may_answer.clear()
    batcher = make(2, threads=1, most_batches=2)
    running = batcher.submit(samples(0, 2), 2)
    assert model.asked.acquire(timeout=LIMIT_S)  # the only thread is busy
    waiting = [batcher.submit(samples(first, 2), 2) for first in (2, 4)]
    with pytest.raises(ServingError, match="queue to which this task was submitted is full") as caught:
        batcher.submit(samples(6, 1), 1)
    assert caught.value.code == "UNAVAILABLE"
    model.may_answer.set()
    assert not wait([running, *waiting], LIMIT_S).not_done
    assert batcher.submit(samples(6, 1), 1).result(LIMIT_S)["output"].tolist() == [[12]]


def test_an_error_reaches_all_of_its_batch_and_nobody_else(make: Callable[..., Batcher]) -> None:
    def run(inputs: Dict[str, Any]) -> Dict[str, Any]:
        if inputs["input"].max() > 50:
            raise ServingError("INTERNAL", "too hot")
        return doubled(inputs)

    batcher = make(2, run=run, timeout_s=FOREVER_S)
    answers = [batcher.submit(samples(first, 1), 1) for first in (99, 1, 2, 3)]
    assert [type(answer.exception(LIMIT_S)) for answer in answers] == [
        ServingError,
        ServingError,
        type(None),
        type(None),
    ]


@pytest.mark.parametrize(
    ("output", "text"),
    [(np.float32(1), "Batched output tensor has 0 dimensions"), (np.zeros(3), "does not equal the sum of the 0th")],
)
def test_an_output_without_the_batch_is_refused(output: Any, text: str, make: Callable[..., Batcher]) -> None:
    answer = make(4, run=lambda inputs: {"output": np.asarray(output)}).submit(samples(0, 4), 4)
    with pytest.raises(ServingError, match=text) as caught:
        answer.result(LIMIT_S)
    assert caught.value.code == "FAILED_PRECONDITION"


def test_closing_answers_what_is_in_and_refuses_the_rest(make: Callable[..., Batcher]) -> None:
    batcher = make(4, timeout_s=FOREVER_S)
    answer = batcher.submit(samples(3, 1), 1)
    batcher.close()
    assert answer.result(0)["output"].tolist() == [[6]]
    with pytest.raises(ServingError, match="unloaded") as caught:
        batcher.submit(samples(3, 1), 1)
    assert caught.value.code == "UNAVAILABLE"


def test_many_requests_at_once_each_get_their_own_answer(make: Callable[..., Batcher]) -> None:
    batcher = make(16)
    sizes = [1 + number % 23 for number in range(400)]
    answers = [batcher.submit(samples(1000 * number, size), size) for number, size in enumerate(sizes)]
    for number, (answer, size) in enumerate(zip(answers, sizes)):
        expected = [2000.0 * number + 2 * place for place in range(size)]
        assert answer.result(LIMIT_S)["output"].ravel().tolist() == expected
