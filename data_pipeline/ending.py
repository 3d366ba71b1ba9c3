"""Lets the interpreter end while a tf.data stream is still alive.

A stream reads ahead on threads of TensorFlow's, which call into Python. A thread that wants to do so after the
interpreter has begun to end never comes back, and the stream, torn down after that, waits for it for ever. That is how
a program hung after its last line when it had left a loop over a stream early and something, a traceback is enough,
still held the iterator. So the calls are ended first, while Python still runs.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from typing import Any, Callable

_QUIET_S = 0.1  # without a call: a stream whose calls all fail has filled its buffers long before
_MOST_S = 5.0


class InterpreterEnds(Exception):
    """Nobody takes what a stream reads any more."""


class _Calls:
    """Counts the calls from streams into Python, and refuses them from the end on."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running, self.last, self.is_over = 0, float("-inf"), False

    def begin(self) -> None:
        with self.lock:
            self.last = time.monotonic()
            if self.is_over:
                raise InterpreterEnds("the interpreter ends")
            self.running += 1

    def finish(self) -> None:
        with self.lock:
            self.running -= 1
            self.last = time.monotonic()

    def end(self) -> None:
        """Wait until no call runs and none has come for a while; TensorFlow does not say when a buffer is full."""
        self.is_over = True
        limit = time.monotonic() + _MOST_S
        while time.monotonic() < limit:
            with self.lock:
                waiting = _QUIET_S if self.running else self.last + _QUIET_S - time.monotonic()
            if waiting <= 0:
                return
            time.sleep(waiting)


_calls = _Calls()
atexit.register(_calls.end)


def ends_with_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for tf.numpy_function: not called any more when the interpreter is about to end."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        _calls.begin()
        try:
            return function(*arguments)
        finally:
            _calls.finish()

    return call
