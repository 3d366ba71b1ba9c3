"""The tier without TensorFlow and without processes. An audit hook holds it to both."""

from __future__ import annotations

import sys
from typing import Any, Iterator

import numpy.testing  # noqa: F401 - asks lscpu about the processor when it is first imported
import pytest

# What Python raises before it starts a process, whichever module asked for it.
_PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec"}
_is_watched = False


def _refuse(event: str, arguments: Any) -> None:
    if not _is_watched:
        return
    if event in _PROCESSES:
        pytest.fail(f"it starts a process ({event} {arguments}), which is for tests/live")
    if event == "import" and arguments[0] == "tensorflow":
        pytest.fail("it imports TensorFlow, which is for tests/tensorflow")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def _watch() -> Iterator[None]:
    global _is_watched
    _is_watched = True
    yield
    _is_watched = False


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules are imported before any test: of this tier, none may have brought TensorFlow with it."""
    tier = str(session.config.rootpath / "tests" / "unit")
    if all(str(item.path).startswith(tier) for item in session.items) and "tensorflow" in sys.modules:
        pytest.exit("a module of tests/unit imports TensorFlow: move it to tests/tensorflow", returncode=1)
