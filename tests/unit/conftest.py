"""The tier without TensorFlow and without processes. An audit hook holds it to both."""

from __future__ import annotations

import sys
from typing import Any, Iterator

import numpy.testing  # noqa: F401 - asks lscpu about the processor when it is first imported
import pytest

# What Python raises before it starts a process, whichever module asked for it.
_PROCESS_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec"}
_watched = False


def _refuse(event: str, arguments: Any) -> None:
    if _watched and event in _PROCESS_EVENTS:
        pytest.fail(f"a test of this tier starts a process ({event} {arguments}): move it to tests/live")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def _without_processes() -> Iterator[None]:
    global _watched
    _watched = True
    yield
    _watched = False
