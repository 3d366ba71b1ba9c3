"""One sender: a process that sends its requests, and knows which answer belongs to which sample."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import grpc
import numpy as np

from ipulaunch.configs.errors import JobError
from ipulaunch.workers.server.client import Client, ServerError, Signature
from ipulaunch.workers.server.messages import PredictRequest, PredictResponse
from ipulaunch.workers.server.tensors import to_array, to_content

SAMPLES, LABELS = "samples", "labels"  # files that senders share: values as they lie in memory, and int64
MOST_ON_THE_WAY = 16  # requests of an asynchronous sender: all senders together stay far below the queue of the server
_REQUEST_S = 120.0  # after which an answer is considered lost


class Work(NamedTuple):
    """What all senders have in common."""

    address: str
    model: str
    signature: Signature
    samples: Any
    labels: Optional[Any]
    batch_size: int
    images: int  # of each sender
    is_async: bool


class Outcome(NamedTuple):
    """What a sender has measured."""

    started_at: float
    ended_at: float
    latencies: List[float]
    right: int
    labelled: int


def send(work: Work, number: int, ready: Callable[[], None]) -> Outcome:
    """Send one request to warm up, wait for the others, and send the rest."""
    client = Client(work.address)
    try:
        chosen = _chosen(work, number)
        _call(client, _request(work, chosen[0]))
        ready()
        started_at = time.monotonic()
        # Made one at a time: those of all senders together would not fit into memory.
        requests = (_request(work, places) for places in chosen)
        answers = (_send_async if work.is_async else _send_one_by_one)(client, requests)
        ended_at = time.monotonic()
    finally:
        client.close()
    right, labelled = _right(work, chosen, [data for _, data in answers])
    return Outcome(started_at, ended_at, [latency for latency, _ in answers], right, labelled)


def _chosen(work: Work, number: int) -> List[Tuple[int, int]]:
    """The samples of each request, as the first one and their number: another part of the set for each sender."""
    sizes = [work.batch_size] * (work.images // work.batch_size)
    if work.images % work.batch_size:
        sizes.append(work.images % work.batch_size)
    first, chosen = number * work.images, []
    for size in sizes:
        chosen.append((first % len(work.samples), size))
        first += size
    return chosen


def _places(work: Work, places: Tuple[int, int]) -> Any:
    first, size = places
    return np.arange(first, first + size) % len(work.samples)


def _request(work: Work, places: Tuple[int, int]) -> bytes:
    request = PredictRequest()
    request.model_spec.name = work.model
    to_content(work.samples[_places(work, places)], request.inputs[work.signature.alias])
    data: bytes = request.SerializeToString()
    return data


def _call(client: Client, request: bytes) -> bytes:
    try:
        answer: bytes = client.predict(request, timeout=_REQUEST_S)
    except grpc.RpcError as error:
        raise ServerError(error) from error
    return answer


def _send_one_by_one(client: Client, requests: Iterable[bytes]) -> List[Tuple[float, bytes]]:
    answers = []
    for request in requests:
        sent_at = time.monotonic()
        data = _call(client, request)
        answers.append((time.monotonic() - sent_at, data))
    return answers


def _send_async(client: Client, requests: Iterable[bytes]) -> List[Tuple[float, bytes]]:
    """Send without waiting for the answers before, as long as not too many are on the way."""
    room = threading.Semaphore(MOST_ON_THE_WAY)
    latencies: Dict[int, float] = {}
    futures = []
    for number, request in enumerate(requests):
        room.acquire()
        sent_at = time.monotonic()
        future = client.predict.future(request, timeout=_REQUEST_S)

        def arrived(_: Any, number: int = number, sent_at: float = sent_at) -> None:
            latencies[number] = time.monotonic() - sent_at
            room.release()

        future.add_done_callback(arrived)
        futures.append(future)
    try:
        answers = [future.result() for future in futures]
    except grpc.RpcError as error:
        raise ServerError(error) from error
    for _ in range(MOST_ON_THE_WAY):  # an answer may be here before its latency is
        room.acquire()
    return [(latencies[number], data) for number, data in enumerate(answers)]


def _right(work: Work, chosen: List[Tuple[int, int]], answers: List[bytes]) -> Tuple[int, int]:
    """How many samples were classified as their labels say, of how many; outputs that are no classes have no labels."""
    right = labelled = 0
    if work.labels is None:
        return right, labelled
    for places, data in zip(chosen, answers):
        (output, *_) = PredictResponse.FromString(data).outputs.values()
        scores = to_array(output, "output")
        expected = work.labels[_places(work, places)]
        if len(scores) != len(expected):
            raise JobError(f"an answer has {len(scores)} samples, and its request had {len(expected)}")
        if scores.ndim == 2:
            right += int(np.count_nonzero(scores.argmax(axis=1) == expected))
            labelled += len(expected)
    return right, labelled
