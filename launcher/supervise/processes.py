"""Processes: those that we start and end, those that the kernel lists, and the runs that they work for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

ENGINE_ENDS_ON = signal.SIGINT
_END_S, _END_INTERVAL_S = 10.0, 0.01  # for the kernel to end what was killed, on a busy machine

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)
_PROC = Path("/proc")
_WORKERS = "ipulaunch.workers"  # among the arguments of the engine and of every instance


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies.

    mpirun puts each instance into a process group of its own, so that killing one group does not reach them all.
    """
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """For a child to call before it becomes its program: the kernel ends it when we die."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _become_engine() -> None:
    """For the engine to call before it becomes its program: INT ends it, ours or for our death; TERM does not reach it.

    Schedulers that track jobs by cgroups send TERM to every process of a job. mpirun would end the instances before
    they have written their checkpoint; it never unblocks TERM for itself, and always for the instances.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(ENGINE_ENDS_ON, signal.SIG_DFL)  # shells let their background jobs ignore INT
    _libc.prctl(_PR_SET_PDEATHSIG, ENGINE_ENDS_ON, 0, 0, 0)


def start(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start an engine in its own session, with one pipe for all of its output. It is ended if we die."""
    return subprocess.Popen(
        list(argv),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_become_engine,
    )


class _Tree:
    """The living processes of this machine, as they were a moment ago."""

    def __init__(self) -> None:
        self.children: Dict[int, List[int]] = {}
        self.stopped: Set[int] = set()
        for process in all_processes():
            self.children.setdefault(process.parent, []).append(process.pid)
            if process.state == "T":
                self.stopped.add(process.pid)

    def below(self, pid: int) -> List[int]:
        found: List[int] = []
        queue = list(self.children.get(pid, []))
        while queue:
            found.append(queue.pop())
            queue.extend(self.children.get(found[-1], []))
        return found


def descendants() -> List[int]:
    """Every living process below us, whoever started it."""
    return _Tree().below(os.getpid())


def wake() -> bool:
    """Let every process below us that was stopped go on; whether there was one.

    The instances that were not are stopped instead: together they would train on, and might even come to their end.
    """
    tree = _Tree()
    below = tree.below(os.getpid())
    stopped = [pid for pid in below if pid in tree.stopped]
    if stopped:
        _send((pid for pid in below if pid not in tree.stopped and _rank(pid) is not None), signal.SIGSTOP)
        _send(stopped, signal.SIGCONT)
    return bool(stopped)


def pass_on(number: int, engine: int) -> bool:
    """Send a signal to the process groups of the instances here, as a terminal would; whether there is one."""
    groups = set()
    for pid in descendants():
        if _rank(pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                groups.add(os.getpgid(pid))
    groups.discard(engine)  # where we run under MPI ourselves, the engine looks like an instance
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    return bool(groups)


def left_behind(engine: int) -> List[int]:
    """Processes that outlive the instance that started them.

    mpirun waits for them: for mpirun, an instance has ended when no process holds its output open any more.
    """
    tree = _Tree()
    adopted = [pid for pid in tree.children.get(os.getpid(), []) if pid != engine]
    if not adopted:
        return []
    living = {_rank(pid) for pid in tree.below(engine)}
    orphans = [pid for pid in adopted if _rank(pid) is not None and _rank(pid) not in living]
    return [pid for orphan in orphans for pid in (orphan, *tree.below(orphan))]


def _rank(pid: int) -> Optional[bytes]:
    """The instance that a process belongs to, from the variables that Open MPI sets."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((word for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK=")), None)


def end(pids: Iterable[int]) -> None:
    """Kill these processes."""
    _send(pids, signal.SIGKILL)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all() -> None:
    """Kill everything below us."""
    deadline = time.monotonic() + _END_S
    living = descendants()
    while living and time.monotonic() < deadline:  # a process may fork while we look; each round leaves fewer
        end(living)
        _reap()
        time.sleep(_END_INTERVAL_S)
        living = descendants()
    _reap()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class Process(NamedTuple):
    """A process that lives, or has just ended; what it lacks then is empty."""

    place: Path  # where the kernel shows it
    pid: int
    parent: int
    state: str  # a letter: T is stopped

    @property
    def words(self) -> Tuple[str, ...]:
        """Its command line; threads of the kernel have none."""
        with contextlib.suppress(OSError):
            return tuple(os.fsdecode((self.place / "cmdline").read_bytes()).rstrip("\0").split("\0"))
        return ()

    @property
    def user(self) -> Optional[int]:
        return user_of(self.place)


def all_processes(proc: Path = _PROC) -> Iterator[Process]:
    """Every living process that the kernel shows."""
    with contextlib.suppress(OSError):  # there is no /proc
        for place in proc.iterdir():
            if place.name.isdecimal():
                with contextlib.suppress(OSError, ValueError):  # it has just ended
                    # The name in parentheses may hold blanks, parentheses itself, and bytes that are not text.
                    state, parent = (place / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                    if state != b"Z":
                        yield Process(place, int(place.name), int(parent), state.decode("ascii"))


def user_of(place: Path) -> Optional[int]:
    """The user of a process, by its directory in /proc."""
    with contextlib.suppress(OSError):
        found = re.search(rb"^Uid:\s*(\d+)", (place / "status").read_bytes(), re.MULTILINE)
        return int(found[1]) if found else None
    return None


def runs_here(proc: Path = _PROC) -> Set[Path]:
    """The runs of this user that have a living engine or instance on this machine, with or without a launcher."""
    found = (_run_of(process.words) for process in all_processes(proc) if process.user == os.getuid())
    return {run for run in found if run is not None}


def _run_of(words: Tuple[str, ...]) -> Optional[Path]:
    if _WORKERS not in words:
        return None
    named = (other for one, other in zip(words, words[1:]) if one == "--run-dir")
    return next(map(Path, named), None)
