"""Starting a process tree so that none of it can outlive us, and ending all of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set

from ipulaunch.launcher.supervise.process_table import all_processes

ENGINE_ENDS_ON = signal.SIGINT
_END_S, _END_INTERVAL_S = 10.0, 0.01  # for the kernel to end what was killed, on a busy machine

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


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
