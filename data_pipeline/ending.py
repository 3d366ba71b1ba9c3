"""Lets the interpreter end while a tf.data stream is still alive.

A stream reads ahead on threads of TensorFlow's, which call into Python. A thread that calls after the
interpreter has begun to end never returns, and the stream, torn down later, waits for it for ever. So a program hung
after its last line if it had left a loop over a stream early and something (a traceback is enough) still held the
iterator. Therefore the calls end first, while Python still runs.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from typing import Any, Callable

_QUIET_S = 0.1  # seconds without a call: a stream whose calls all fail fills its buffers much faster
_MOST_S = 5.0


class InterpreterEnds(Exception):
    """Nobody needs what a stream reads any more."""


class _Calls:
    """Counts the calls from streams into Python, and refuses them once the interpreter ends."""

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
    """The same function, for tf.numpy_function: no longer called when the interpreter is about to end."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        _calls.begin()
        try:
            return function(*arguments)
        finally:
            _calls.finish()

    return call
