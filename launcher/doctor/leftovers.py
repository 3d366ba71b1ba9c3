"""What earlier runs have left behind: processes, half-written checkpoints, runs without an end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

from ipulaunch.configs.run_directory import RUNS, RunDirectory
from ipulaunch.configs.wording import counted
from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import OK, WARNING, Check, some
from ipulaunch.launcher.doctor.world import World

GROUP = "leftovers"
_INSTANCE = "ipulaunch.workers"
# Programs that an instance may be below, here or on a host where only a daemon is.
_LAUNCHERS = {"ipulaunch", "ipulaunch.launcher", "poprun", "mpirun", "mpiexec", "prterun", "prte", "prted", "orted"}
_LAUNCHERS |= {"srun", "slurmstepd"}
_ENDS = ("error.json", "stopped.json")
_MOST_RUNS = 200  # the newest, that are looked at


class Process(NamedTuple):
    """A process of this machine."""

    pid: int
    parent: int
    user: str
    words: Tuple[str, ...]

    @property
    def is_instance(self) -> bool:
        return any(word == _INSTANCE or word.startswith(f"{_INSTANCE}.") for word in self.words[1:4])

    @property
    def is_launcher(self) -> bool:
        return any(Path(word).name in _LAUNCHERS for word in self.words[:3])


def check_leftovers(case: Case, world: World) -> List[Check]:
    """Three kinds, each with how to be rid of it."""
    processes = read_processes(world)
    runs = _runs(case, processes)
    return [_orphans(processes, world), _half_written(case, runs), _endless(runs)]


def read_processes(world: World) -> Dict[int, Process]:
    """Every process that the kernel shows."""
    found: Dict[int, Process] = {}
    try:
        entries = [entry.name for entry in (world.root / "proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return {}
    for entry in entries:
        status, words = world.read(f"proc/{entry}/status"), world.read(f"proc/{entry}/cmdline")
        parent, user = (re.search(rf"^{name}:\s*(\d+)", status, re.MULTILINE) for name in ("PPid", "Uid"))
        if parent and user and words:  # else it has ended, or belongs to the kernel
            found[int(entry)] = Process(int(entry), int(parent[1]), user[1], tuple(words.rstrip("\0").split("\0")))
    return found


def _orphans(processes: Dict[int, Process], world: World) -> Check:
    match = re.search(r"^Uid:\s*(\d+)", world.read("proc/self/status"), re.MULTILINE)
    user = match[1] if match else ""
    lost = sorted(
        process.pid
        for process in processes.values()
        if process.is_instance and process.user == user and not _is_led(process, processes)
    )
    if not lost:
        return Check(GROUP, "processes", OK, "no instance of yours without a launcher")
    found = f"{counted(len(lost), 'instance')} without a launcher: {some([str(pid) for pid in lost])}"
    return Check(GROUP, "processes", WARNING, found, f"if you do not want {_it(lost)}: kill {' '.join(map(str, lost))}")


def _is_led(process: Process, processes: Dict[int, Process]) -> bool:
    seen = {process.pid}
    while process.parent in processes and process.parent not in seen:
        process = processes[process.parent]
        seen.add(process.pid)
        if process.is_launcher:
            return True
    return False


def _runs(case: Case, processes: Dict[int, Process]) -> List[Path]:
    """The newest runs that nothing works on any more."""
    busy = {word for process in processes.values() for word in process.words}
    found: Dict[Path, float] = {}
    for base in {case.directory / RUNS, case.runs}:
        try:
            for path in base.iterdir():
                if RunDirectory(path).job.is_file():  # a program of the user's own writes no end
                    found[path.absolute()] = path.stat().st_mtime
        except OSError:
            continue
    newest = sorted(found, key=lambda path: found[path], reverse=True)[:_MOST_RUNS]
    return [path for path in newest if str(path) not in busy]


def _half_written(case: Case, runs: List[Path]) -> Check:
    places = [RunDirectory(run).checkpoints for run in runs]
    places += [place.path for place in case.writes if place.name == "checkpoints"]
    left = [path for place in places for path in sorted(place.glob(".update-*"))]
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
    return Check(GROUP, "runs", WARNING, found, f"ipulaunch resume {open_ended[0]}, or remove what is not needed")


def _has_ended(run: Path) -> bool:
    instances = list(run.glob("instance-*"))
    if any((instance / name).is_file() for instance in instances for name in _ENDS):
        return True
    return bool(instances) and all((instance / "done.json").is_file() for instance in instances)


def _it(things: List[int]) -> str:
    return "it" if len(things) == 1 else "them"
