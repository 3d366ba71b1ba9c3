from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterator, List, Optional

import pytest
from hypothesis import HealthCheck, settings

# How many cases each parser gets; `make fuzz` sets it, and then they are new ones each time.
CASES = os.environ.get("FUZZ_CASES")
FEW = 50
PROMISED = 100_000  # by `make fuzz`, over all parsers

MOST_SECONDS = 30.0  # of the processor, for one case
MOST_BYTES = 1 << 30  # of memory, beyond what was in use before

settings.register_profile(
    "fuzz",
    max_examples=int(CASES or FEW),
    derandomize=CASES is None,
    database=None,
    deadline=None,  # the processor's time is counted instead: others may keep this machine busy
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("fuzz")

_counts: Counter[str] = Counter()

# What no parser has any business with. `exec` is also what an import does with a module's code.
_FORBIDDEN = {
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pty.spawn"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "ctypes.dlopen", "pickle.find_class"),
    *("os.remove", "os.rename", "os.rmdir", "os.chmod", "os.chown", "os.symlink", "os.link", "shutil.rmtree"),
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """Notes what a parser does to the world, through Python's audit events. A hook cannot be taken away again."""

    def __init__(self) -> None:
        self.place: Optional[str] = None  # where writing is allowed; None while nobody is watched
        self.seen: List[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: Any) -> None:
        if self.place is None:
            return
        if event == "open":
            path, _, flags = arguments
            is_ours = isinstance(path, (str, bytes)) and os.fsdecode(path).startswith(self.place)
            if isinstance(flags, int) and flags & _WRITES and not is_ours:
                self.seen.append(f"open {path!r} to write")
        elif event == "exec":
            name = getattr(arguments[0], "co_filename", "")
            if not Path(name).is_file():
                self.seen.append(f"exec of {name}")
        elif event in _FORBIDDEN:
            is_ours = arguments and isinstance(arguments[0], (str, bytes)) and self.place in os.fsdecode(arguments[0])
            if not is_ours:
                self.seen.append(f"{event} {arguments!r}")


@pytest.fixture(scope="session")
def _watch() -> Watch:
    return Watch()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory in memory, where there is such a place: a hundred thousand files are much for a disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        yield Path(directory)


@pytest.fixture
def watched(_watch: Watch, scratch: Path) -> Iterator[Callable[[str], ContextManager[None]]]:
    """Counts a case of a parser, and fails if the parser does anything but read, or takes too long over it."""

    @contextlib.contextmanager
    def watch(parser: str) -> Iterator[None]:
        _counts[parser] += 1
        _watch.seen.clear()
        started = time.process_time()
        if _counts[parser] % 100 == 1:  # for a loop in C, which nothing else can end; it starts a thread
            faulthandler.dump_traceback_later(1800, exit=True)
        _watch.place = str(scratch)
        try:
            yield
        finally:
            _watch.place = None
        seconds = time.process_time() - started
        assert not _watch.seen, _watch.seen
        assert seconds < MOST_SECONDS, f"{parser} took {seconds:.1f} s"

    before = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MOST_BYTES, before[1]))
    yield watch
    faulthandler.cancel_dump_traceback_later()
    resource.setrlimit(resource.RLIMIT_AS, before)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if CASES is not None:
        terminalreporter.section("cases")
        for parser, count in sorted(_counts.items()):
            terminalreporter.write_line(f"{count:8} {parser}")
        terminalreporter.write_line(f"{sum(_counts.values()):8} in all")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run of `make fuzz` with fewer cases than promised is none."""
    if CASES is not None and sum(_counts.values()) < PROMISED and session.exitstatus == 0:
        session.exitstatus = 1
        print(f"\n{sum(_counts.values())} cases, expected {PROMISED}", file=sys.stderr)
