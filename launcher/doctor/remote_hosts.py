"""The other hosts of a run: the doctor asks each over ssh, all at the same time, before anything starts there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.text import some
from ipulaunch.launcher.doctor.diagnosis import MISSING, OK, WARNING, Check, Diagnosis, clean
from ipulaunch.launcher.doctor.environment import Environment, Output
from ipulaunch.launcher.doctor.interpreter import own_version
from ipulaunch.launcher.doctor.places import nearest
from ipulaunch.launcher.engines.registry import ENGINES, engine_class
from ipulaunch.topology.machines.hosts import is_here

GROUP = "host "  # and its name
# Inside a job, mpirun starts its daemons through the scheduler, if it was built with support for it.
_STARTERS = {"SLURM_JOB_ID": "srun", "PBS_NODEFILE": "the task manager of PBS"}
_SSH = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]
_HOST_S, _ALL_S = 20.0, 60.0
_AT_ONCE = 32
_MOST_NAMES = 4
_CLOCK_S = 1.0
_SSH_FAILED = 255
_PREFIX = "ipulaunch-doctor "

# The time comes last: only the way back follows it.
_QUESTION = r"""
import json, os, sys, time
marker, directory, data = sys.argv[1:4]
answer = {"marker": os.path.exists(marker), "directory": os.path.isdir(directory), "python": sys.version.split()[0]}
answer["data"] = os.access(data, os.R_OK) if data else True
try:
    from importlib.metadata import version
    answer["version"] = version("ipulaunch")
except Exception as error:
    answer["version"] = ""
answer["time"] = time.time()
print("ipulaunch-doctor " + json.dumps(answer))
sys.stdout.flush()
os._exit(0)
"""

# Messages of ssh, and what helps.
_FIXES = (
    ("Permission denied", "ssh-copy-id {host}: ssh must work without a password"),
    ("Host key verification failed", "ssh-keyscan {host} >> ~/.ssh/known_hosts, once you know the key is right"),
    ("Could not resolve", "check the name, and that this machine can look it up"),
    ("Connection refused", "start sshd on {host}, or check the port in ~/.ssh/config"),
)


class Shared(NamedTuple):
    """What every host is asked about."""

    diagnosis: Diagnosis
    marker: str  # a file made for this beside the run; "" if that failed
    directory: str
    data: str


def check_hosts(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Every host but this one, in their order.

    Inside a job, a host that ssh does not reach may still work, so it gets only a warning.
    """
    starter = next((what for name, what in _STARTERS.items() if environment.environ.get(name)), "")
    return [_in_doubt(check, starter) if starter else check for check in _asked(diagnosis, environment)]


def _in_doubt(check: Check, starter: str) -> Check:
    if check.name != "ssh" or check.state != MISSING:
        return check
    found, fix = f"not checked over ssh: {check.found}", f"none is needed where {starter} reaches it from this job"
    return check._replace(state=WARNING, found=found, fix=fix, stops=())


def _asked(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    others = [host for host in diagnosis.hosts if not is_here(host)]
    checks: Dict[str, List[Check]] = {
        host: [Check(GROUP + host, "ssh", OK, "this machine")] for host in diagnosis.hosts if is_here(host)
    }
    if others and environment.find("ssh") is None:
        fix = "install an ssh client; mpirun and poprun start instances on other hosts with it"
        return [Check(GROUP + host, "ssh", MISSING, "there is no ssh here", fix, ENGINES) for host in others]
    directory = nearest(diagnosis.runs)
    data = next((str(place.path) for place in diagnosis.reads if place.name == "data"), "")
    with _marker(directory) as marker:
        checks.update(_ask_all(others, Shared(diagnosis, marker, str(directory), data), environment))
    return [check for host in diagnosis.hosts for check in checks[host]]


def require_hosts(diagnosis: Diagnosis, environment: Environment) -> List[str]:
    """An error if a host is not ready; the launcher calls this before it starts anything.

    Returns warnings about hosts that could not be checked.
    """
    checks = [clean(check) for check in check_hosts(diagnosis, environment)]
    wrong = [check for check in checks if _is_trouble(check, diagnosis)]
    if wrong:
        lines = [f"{check.group}: {check.name}: {check.found}" for check in wrong]
        raise NotReadyError("; ".join(lines), hint=wrong[0].fix)
    doubts = [check for check in checks if check.name == "ssh" and check.state == WARNING]
    return [f"{some([check.group for check in doubts], _MOST_NAMES)}: {doubts[0].found}"] if doubts else []


def unready_hosts(diagnosis: Diagnosis, environment: Environment) -> Dict[str, str]:
    """The hosts that could not take part now, each with its first problem.

    ssh does not show what poprun brings to the hosts, nor what a user's program needs there: for these, only a host
    that does not answer is a problem.
    """
    only_silence = diagnosis.is_own_program or not engine_class(str(diagnosis.engine)).asks_hosts
    wrong: Dict[str, str] = {}
    for check in map(clean, check_hosts(diagnosis, environment)):
        if _is_trouble(check, diagnosis) and (check.name == "ssh" or not only_silence):
            what = "does not answer" if check.name == "ssh" else f"is not ready: {check.name}"
            wrong.setdefault(check.group[len(GROUP) :], f"{what} ({check.found})")
    return wrong


def _is_trouble(check: Check, diagnosis: Diagnosis) -> bool:
    return check.state == MISSING and diagnosis.engine in check.stops


def _ask_all(hosts: List[str], shared: Shared, environment: Environment) -> Dict[str, List[Check]]:
    deadline = time.monotonic() + _ALL_S
    late = f"not asked: the others took longer than {_ALL_S:.0f} s"
    checks = {host: [Check(GROUP + host, "ssh", MISSING, late, "look at fewer hosts", ENGINES)] for host in hosts}
    waiting = list(reversed(hosts))

    def work() -> None:
        while waiting and time.monotonic() < deadline:
            try:
                host = waiting.pop()
            except IndexError:  # another thread took the last host
                return
            checks[host] = ask_host(host, shared, environment, min(_HOST_S, max(1.0, deadline - time.monotonic())))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_AT_ONCE, len(hosts)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()) + 1)
    finally:
        waiting.clear()  # after an interrupt, no thread asks another host
    return dict(checks)


def ask_host(host: str, shared: Shared, environment: Environment, timeout_s: float) -> List[Check]:
    """One host: reachable without a password, the same Python, version, directories and time."""
    diagnosis = shared.diagnosis
    words = [diagnosis.python, "-", shared.marker, shared.directory, shared.data]
    before = environment.clock()
    said = environment.run([*_SSH, host, " ".join(map(shlex.quote, words))], timeout_s, _QUESTION)
    now = environment.clock()
    group = GROUP + host
    if said.code in (None, _SSH_FAILED):
        why = said.last_line or "ssh failed"
        return [Check(group, "ssh", MISSING, why, _fix(host, why), ENGINES)]
    reachable = Check(group, "ssh", OK, "by ssh, without a password")
    answer = _read(said)
    if answer is None:
        found = f"{diagnosis.python}: {said.last_line or f'exit code {said.code}'}"
        fix = (
            "the same Python must be under the same path on every host: a shared file system, or the same installation"
        )
        return [reachable, Check(group, "Python", MISSING, found, fix, diagnosis.through_ours)]
    return [
        reachable,
        Check(group, "Python", OK, f"{answer.get('python')}: {diagnosis.python}"),
        _version(group, diagnosis, str(answer.get("version", ""))),
        _directory(group, shared, answer),
        *_data(group, shared, answer),
        _clock(group, answer, before, now),
    ]


def _fix(host: str, why: str) -> str:
    fix = next((fix for sign, fix in _FIXES if sign in why), "try it by hand: ssh -o BatchMode=yes {host} true")
    return fix.format(host=host)


def _read(said: Output) -> Optional[Dict[str, Any]]:
    """The answer in the output, which may hold other lines of a login shell."""
    for line in said.out.splitlines():
        if line.startswith(_PREFIX):
            with contextlib.suppress(ValueError):
                answer = json.loads(line[len(_PREFIX) :])
                return answer if isinstance(answer, dict) else None
    return None


def _version(group: str, diagnosis: Diagnosis, theirs: str) -> Check:
    if not theirs:
        fix = "install it in that Python"
        return Check(group, "ipulaunch", MISSING, "not installed there", fix, diagnosis.through_ours)
    if theirs != own_version():
        found = f"{theirs}, and here {own_version()}"
        return Check(
            group, "ipulaunch", MISSING, found, "install the same version on every host", diagnosis.for_workloads()
        )
    return Check(group, "ipulaunch", OK, theirs)


def _directory(group: str, shared: Shared, answer: Dict[str, Any]) -> Check:
    fix = "put the run on a file system that all hosts share, with --run-dir"
    stops = shared.diagnosis.for_workloads()
    if not answer.get("directory"):
        return Check(group, "run directory", MISSING, f"{shared.directory} is not there", fix, stops)
    if not shared.marker:
        found = (
            f"{shared.directory} exists, but may be another one: nothing can be written in it, so this was not checked"
        )
        return Check(group, "run directory", WARNING, found, fix)
    if not answer.get("marker"):
        found = f"{shared.directory} is there, but is not the same as here"
        return Check(group, "run directory", MISSING, found, fix, stops)
    return Check(group, "run directory", OK, f"{shared.directory} is shared")


def _data(group: str, shared: Shared, answer: Dict[str, Any]) -> List[Check]:
    if not shared.data:
        return []
    if not answer.get("data"):
        fix = "the data must be under the same path on every host: a shared file system, or a copy"
        return [Check(group, "data", MISSING, f"{shared.data} cannot be read there", fix, ENGINES)]
    return [Check(group, "data", OK, shared.data)]


def _clock(group: str, answer: Dict[str, Any], before: float, now: float) -> Check:
    """The host read its clock between the question and the answer, which may be seconds apart."""
    theirs = answer.get("time")
    if not isinstance(theirs, (int, float)):
        return Check(group, "clock", WARNING, "it does not report its time", "see date on both hosts")
    apart = theirs - min(max(theirs, before), now)
    if abs(apart) > _CLOCK_S:
        found = (
            f"{abs(apart):.1f} s {'ahead' if apart > 0 else 'behind'}: the wrong failure may be reported as the first"
        )
        return Check(group, "clock", WARNING, found, "keep the clocks set with chrony or ntp")
    return Check(group, "clock", OK, f"within {_CLOCK_S + max(0.0, now - before):.0f} s of this one")


@contextlib.contextmanager
def _marker(directory: Path) -> Iterator[str]:
    """A temporary file beside the run, for other hosts to see: equal paths may be different disks."""
    path = ""
    with contextlib.suppress(OSError):
        handle, path = tempfile.mkstemp(prefix=".ipulaunch-doctor-", dir=str(directory))
        os.close(handle)
    try:
        yield path
    finally:
        if path:
            Path(path).unlink()
