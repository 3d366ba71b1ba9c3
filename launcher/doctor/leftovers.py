"""What earlier runs left behind: processes, memory, sessions, half-written checkpoints, runs without an end."""

from __future__ import annotations

import contextlib
import shlex
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.checkpoints import half_written_in
from ipulaunch.configs.runs.directory import RUNS, records_of
from ipulaunch.configs.text import counted, some
from ipulaunch.launcher.doctor.diagnosis import OK, WARNING, Check, Diagnosis
from ipulaunch.launcher.doctor.environment import Environment
from ipulaunch.launcher.launch.earlier_runs import FRESH_S, all_runs, last_sign, newest_first
from ipulaunch.launcher.supervise.endings import attempt_of, read_endings
from ipulaunch.launcher.supervise.processes import all_processes, user_of
from ipulaunch.launcher.supervise.session_files import left_sessions, place_of_sessions

GROUP = "leftovers"
_INSTANCE = "ipulaunch.workers"
# Programs that may be above an instance, here or on a host with only a daemon.
_LAUNCHERS = {"ipulaunch", "ipulaunch.launcher", "poprun", "mpirun", "mpiexec", "prterun", "prte", "prted", "orted"}
_LAUNCHERS |= {"srun", "slurmstepd"}
_MOST_RUNS = 200  # the newest, to examine


class Program(NamedTuple):
    """A program that a process of this machine runs."""

    pid: int
    parent: int
    user: Optional[int]
    words: Tuple[str, ...]

    @property
    def is_instance(self) -> bool:
        return any(word == _INSTANCE or word.startswith(f"{_INSTANCE}.") for word in self.words[1:4])

    @property
    def is_launcher(self) -> bool:
        return any(Path(word).name in _LAUNCHERS for word in self.words[:3])


def check_leftovers(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Five kinds of leftovers, each with a way to remove it."""
    processes = read_programs(environment)
    runs = _runs(diagnosis, processes)
    return [
        _orphans(processes, environment),
        _half_written(diagnosis, runs),
        _endless(runs),
        _memory(processes, environment),
        _sessions(environment),
    ]


def read_programs(environment: Environment) -> Dict[int, Program]:
    """Every program that the kernel shows; it has threads of its own, which run none."""
    found = (Program(each.pid, each.parent, each.user, each.words) for each in all_processes(environment.root / "proc"))
    return {program.pid: program for program in found if any(program.words)}


def _orphans(processes: Dict[int, Program], environment: Environment) -> Check:
    user = _user(environment)
    lost = sorted(
        process.pid
        for process in processes.values()
        if process.is_instance and process.user == user and not _is_led(process, processes)
    )
    if not lost:
        return Check(GROUP, "processes", OK, "no instance of yours without a launcher")
    found = f"{counted(len(lost), 'instance')} without a launcher: {some([str(pid) for pid in lost])}"
    return Check(GROUP, "processes", WARNING, found, f"if you do not want {_it(lost)}: kill {' '.join(map(str, lost))}")


def _is_led(process: Program, processes: Dict[int, Program]) -> bool:
    seen = {process.pid}
    while process.parent in processes and process.parent not in seen:
        process = processes[process.parent]
        seen.add(process.pid)
        if process.is_launcher:
            return True
    return False


def _runs(diagnosis: Diagnosis, processes: Dict[int, Program]) -> List[Path]:
    """The newest runs that no process works on any more."""
    busy = {word for process in processes.values() for word in process.words}
    found: Set[Path] = set()
    for base in {diagnosis.directory / RUNS, diagnosis.runs}:
        with contextlib.suppress(UsageError):
            found.update(path.absolute() for path in all_runs(base))
    return [path for path in newest_first(found)[:_MOST_RUNS] if _is_left(path, busy)]


def _is_left(path: Path, busy: Set[str]) -> bool:
    """Whether no process works on a run, here or elsewhere, or will do so; a user's own program records no end."""
    run = records_of(path)
    waits = run.path == path and run.submitted.is_file()
    return run.job.is_file() and not waits and str(run.path) not in busy and time.time() - last_sign(run) >= FRESH_S


def _half_written(diagnosis: Diagnosis, runs: List[Path]) -> Check:
    places = [records_of(run).checkpoints for run in runs]
    places += [place.path for place in diagnosis.writes if place.name == "checkpoints"]
    left = [path for place in places for path in half_written_in(place)]
    if not left:
        return Check(GROUP, "checkpoints", OK, "none half written")
    found = f"{counted(len(left), 'checkpoint')} half written: {some([str(path) for path in left])}"
    fix = "resuming the run removes them; so does rm -r, if no run writes there"
    return Check(GROUP, "checkpoints", WARNING, found, fix)


def _endless(runs: List[Path]) -> Check:
    open_ended = [run for run in runs if not _has_ended(run)]
    if not open_ended:
        return Check(GROUP, "runs", OK, "none without an end")
    found = f"{counted(len(open_ended), 'run')} without an end: {some([str(run) for run in open_ended])}"
    fix = f"ipulaunch resume {shlex.quote(str(open_ended[0]))}, or remove what is not needed"
    return Check(GROUP, "runs", WARNING, found, fix)


def _has_ended(path: Path) -> bool:
    run = records_of(path)
    instances = run.instances()
    endings = read_endings(run)
    if endings and endings[-1].attempt == attempt_of(run):
        return True
    if any(run.error(instance).is_file() or run.stopped(instance).is_file() for instance in instances):
        return True
    return bool(instances) and all(run.done(instance).is_file() for instance in instances)


def _memory(processes: Dict[int, Program], environment: Environment) -> Check:
    """A launcher that was killed could not remove what its instances shared."""
    user = _user(environment)
    mine = [process.pid for process in processes.values() if process.user == user]
    mapped = "\n".join(environment.read(f"proc/{pid}/maps") for pid in mine)
    left, size = [], 0
    for path in sorted((environment.root / "dev" / "shm").glob("sm_segment.*")):  # as Open MPI 5 names them
        with contextlib.suppress(OSError):
            about = path.stat()
            if about.st_uid == user and f"/dev/shm/{path.name}" not in mapped:
                left.append(path.name)
                size += about.st_size
    if not left:
        return Check(GROUP, "memory", OK, "none that instances of yours shared")
    found = f"{size / 2**20:.0f} MiB of memory that no process uses: {some(left)} in /dev/shm"
    return Check(GROUP, "memory", WARNING, found, "while no run of yours is active here: rm /dev/shm/sm_segment.*")


def _sessions(environment: Environment) -> Check:
    base = place_of_sessions(environment.environ)
    left = left_sessions(environment.root / base.relative_to(base.anchor))
    if not left:
        return Check(GROUP, "sessions", OK, "none of a launcher of yours that was killed")
    found = f"{counted(len(left), 'session')} whose launcher was killed: {some([str(path) for path in left])}"
    return Check(GROUP, "sessions", WARNING, found, f"the next run removes {_it(left)}; so does rm -r")


def _user(environment: Environment) -> Optional[int]:
    return user_of(environment.root / "proc" / "self")


def _it(things: Sequence[object]) -> str:
    return "it" if len(things) == 1 else "them"
