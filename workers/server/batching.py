"""Batches made of requests, by the rules of TensorFlow Serving and with the published parameters."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional

import numpy as np

from ipulaunch.workers.server.status import ServingError

Arrays = Dict[str, Any]

TIMEOUT_S = 500e-6  # how long the first request of a batch waits for others
MOST_BATCHES = 1000  # that wait for a thread
THREADS = 4  # that run batches
MOST_SAMPLES = 1024  # of one request: it is split into batches


class Request:
    """What one caller waits for: the pieces of its outputs, in order."""

    def __init__(self, inputs: Arrays, size: int) -> None:
        self.inputs, self.size = inputs, size
        self.future: Future[Arrays] = Future()
        self.missing = 0
        self.outputs: List[Arrays] = []

    def add_piece(self) -> int:
        self.missing += 1
        self.outputs.append({})
        return len(self.outputs) - 1

    def finish_piece(self, place: int, outputs: Arrays) -> bool:
        """Whether this was the last one. Only one thread at a time may call it."""
        self.outputs[place] = outputs
        self.missing -= 1
        return self.missing == 0

    def answer(self) -> None:
        first, *others = self.outputs
        if others:
            first = {alias: np.concatenate([piece[alias] for piece in self.outputs]) for alias in first}
        self.future.set_result(first)


class Piece(NamedTuple):
    """Samples of one request that run in one batch."""

    request: Request
    place: int
    start: int
    size: int


class Batch:
    """Pieces that run together, at most as many samples as the model takes."""

    def __init__(self) -> None:
        self.pieces: List[Piece] = []
        self.size = 0
        self.opened_at = 0.0

    def add(self, piece: Piece) -> None:
        if not self.pieces:
            self.opened_at = time.monotonic()
        self.pieces.append(piece)
        self.size += piece.size


class Batcher:
    """Runs requests for one signature of one version of a model in batches of a fixed size."""

    def __init__(
        self,
        run: Callable[[Arrays], Arrays],
        batch_size: int,
        *,
        timeout_s: float = TIMEOUT_S,
        most_batches: int = MOST_BATCHES,
        threads: int = THREADS,
    ) -> None:
        self.run, self.batch_size = run, batch_size
        self.timeout_s, self.most_batches = timeout_s, most_batches
        self.most_samples = max(MOST_SAMPLES // batch_size, 1) * batch_size
        self._batches: Deque[Batch] = deque([Batch()])  # the last one is open
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, inputs: Arrays, size: int) -> Future[Arrays]:
        """The answer to a request of so many samples, as soon as there is one."""
        if size > self.most_samples:
            raise ServingError(
                "INVALID_ARGUMENT", f"Task size {size} is larger than maximum input batch size {self.most_samples}"
            )
        request = Request(inputs, size)
        with self._changed:
            if self._closed:
                raise ServingError("UNAVAILABLE", "the model is being unloaded")
            room = (self.most_batches - len(self._batches) + 1) * self.batch_size - self._batches[-1].size
            if size > room:
                raise ServingError("UNAVAILABLE", "The batch scheduling queue to which this task was submitted is full")
            start = 0
            while start < size or not request.outputs:
                if self._batches[-1].size == self.batch_size:
                    self._batches.append(Batch())
                count = min(size - start, self.batch_size - self._batches[-1].size)
                self._batches[-1].add(Piece(request, request.add_piece(), start, count))
                start += count
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Answer what is in, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            self._finish(batch)

    def _next_batch(self) -> Optional[Batch]:
        """The oldest batch, once it is full or has waited long enough; None at the end."""
        with self._changed:
            while True:
                batch = self._batches[0]
                if not batch.pieces:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                left_s = batch.opened_at + self.timeout_s - time.monotonic()
                if batch.size == self.batch_size or left_s <= 0 or self._closed:
                    self._batches.popleft()
                    if not self._batches:
                        self._batches.append(Batch())
                    elif self._batches[0].pieces:
                        self._changed.notify()
                    return batch
                self._changed.wait(left_s)

    def _finish(self, batch: Batch) -> None:
        try:
            outputs = self.run(self._merged(batch))
            self._check(outputs)
        except BaseException as error:  # noqa: BLE001 - the callers get it, whatever it is
            for request in {piece.request for piece in batch.pieces}:
                if not request.future.done():
                    request.future.set_exception(error)
            return
        start = 0
        for piece in batch.pieces:
            mine = {alias: array[start : start + piece.size] for alias, array in outputs.items()}
            start += piece.size
            with self._changed:
                is_complete = piece.request.finish_piece(piece.place, mine)
            if is_complete and not piece.request.future.done():
                piece.request.answer()

    def _merged(self, batch: Batch) -> Arrays:
        """The inputs of all pieces, followed by zeros up to the batch that the model takes."""
        first = batch.pieces[0]
        if first.size == self.batch_size:
            return {alias: array[first.start :][: first.size] for alias, array in first.request.inputs.items()}
        merged = {}
        for alias, like in first.request.inputs.items():
            array = np.zeros((self.batch_size, *like.shape[1:]), like.dtype)
            start = 0
            for piece in batch.pieces:
                samples = piece.request.inputs[alias][piece.start : piece.start + piece.size]
                array[start : start + piece.size] = samples
                start += piece.size
            merged[alias] = array
        return merged

    def _check(self, outputs: Arrays) -> None:
        for array in outputs.values():
            if not array.ndim:
                raise ServingError("FAILED_PRECONDITION", "Batched output tensor has 0 dimensions")
            if len(array) != self.batch_size:
                raise ServingError(
                    "FAILED_PRECONDITION",
                    "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the"
                    " input tensors",
                )
