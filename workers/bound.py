"""Start a program bound to this instance's share of the host: python -m ipulaunch.workers.bound PROGRAM ...

With --run-dir RUN before the program, this process waits for it, and records there how it ended. Where the program asks
to be continued, it also waits for the other programs on this host: mpirun would end them while they write a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Iterable, List, NoReturn, Optional, Tuple

from ipulaunch.configs.errors import IpulaunchError, UsageError
from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.last_records import Exited, path_of, to_text
from ipulaunch.topology.planning import popdist
from ipulaunch.workers import programs
from ipulaunch.workers.lifecycle.binding import bind_share
from ipulaunch.workers.lifecycle.lifetime import end_with_parent

_LOOK_INTERVAL_S = 0.1


def main() -> None:
    run, program = _read_words(sys.argv[1:])
    end_with_parent()
    try:
        if not program:
            raise UsageError("no program is named", hint="python -m ipulaunch.workers.bound PROGRAM ...")
        place = popdist.read_place(os.environ)
        binding = bind_share(place.local_index, place.local_instances)
    except IpulaunchError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        sys.exit(error.exit_code)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # mpirun would keep instance 0 waiting for input that never comes
    os.environ.setdefault("OMP_NUM_THREADS", str(binding.cores))
    # After all else, so that a PopDist of the user's own comes before ours.
    path = [os.environ.get("PYTHONPATH", ""), str(Path(programs.__file__).parent)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    if run is None:
        _become(program)
    exited = _run_recorded(program, run, place.instance)
    if exited.asks_to_continue and run.exited(place.instance).exists():  # else nobody sees the records of this host
        first = place.instance - place.local_index
        _await_records(run, range(first, first + place.local_instances))
    _end_as(exited)


def _read_words(words: List[str]) -> Tuple[Optional[RunDirectory], List[str]]:
    """The run directory, if one is named, and the program."""
    if words[:1] == ["--run-dir"] and len(words) > 1:
        return RunDirectory(Path(words[1])), words[2:]
    return None, words


def _become(program: List[str]) -> NoReturn:
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"error: {program[0]} does not start: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


def _run_recorded(program: List[str], run: RunDirectory, instance: int) -> Exited:
    """Run the program to its end, and record that before mpirun can see it."""
    # mpirun sends its signals to the process group, so the program has them. This process must outlive it.
    free = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, free)
        end_with_parent()
        _become(program)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        exited = Exited(time.time_ns(), 0, os.WTERMSIG(status))
    else:
        exited = Exited(time.time_ns(), os.WEXITSTATUS(status))
    with contextlib.suppress(OSError):  # a host that does not share the disk, or a full one: mpirun may still tell
        write_whole(path_of(exited, run, instance), to_text(exited.to_json()))
    return exited


def _await_records(run: RunDirectory, instances: Iterable[int]) -> None:
    """Wait until these programs have ended too. The launcher asks them to, and ends all of them after its --grace."""
    while not all(run.exited(instance).exists() for instance in instances):
        time.sleep(_LOOK_INTERVAL_S)


def _end_as(exited: Exited) -> NoReturn:
    """End as the program did."""
    if exited.signal:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own
        if exited.signal != signal.SIGKILL:
            signal.signal(exited.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {exited.signal})
        os.kill(os.getpid(), exited.signal)
    sys.exit(exited.exit_code)


if __name__ == "__main__":
    main()
