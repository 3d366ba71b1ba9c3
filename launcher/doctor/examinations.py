"""All checks, run at the same time with a limit; none can stop the others."""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, Tuple

from ipulaunch.launcher.doctor import interpreter, leftovers, machine, mpi, places, sdk
from ipulaunch.launcher.doctor.answers import TIMEOUT_S
from ipulaunch.launcher.doctor.diagnosis import WARNING, Check, Diagnosis, clean
from ipulaunch.launcher.doctor.environment import Environment
from ipulaunch.launcher.doctor.remote_hosts import check_hosts
from ipulaunch.launcher.engines.engine import MPI, SDK

Examination = Callable[[Diagnosis, Environment], List[Check]]

_GROUPS = tuple(each.GROUP for each in (sdk, mpi, interpreter, machine, places, leftovers))  # in this order, then hosts
_CLEAN_UP_S = 2.0
_ALL_S = TIMEOUT_S + 15  # longer than any check has for itself


def examinations(diagnosis: Diagnosis) -> List[Tuple[str, str, Examination]]:
    """The examinations to run, each with the group and the name to report if it does not end."""
    found: List[Tuple[str, str, Examination]] = []
    if diagnosis.examines(SDK):
        found += [(sdk.GROUP, "SDK", sdk.check_sdk), (sdk.GROUP, "V-IPU", sdk.check_vipu)]
    if diagnosis.examines(MPI):
        found.append((mpi.GROUP, "mpirun", mpi.check_mpirun))
    return [
        *found,
        (machine.GROUP, "cores", machine.check_cores),
        (machine.GROUP, "memory", machine.check_memory),
        (machine.GROUP, "limits", machine.check_limits),
        (machine.GROUP, "network", machine.check_network),
        (machine.GROUP, "clock", machine.check_clock),
        (places.GROUP, "directories", places.check_places),
        (places.GROUP, "volumes", places.check_volumes),
        (leftovers.GROUP, "leftovers", leftovers.check_leftovers),
        ("hosts", "hosts", check_hosts),
        (interpreter.GROUP, "Python", interpreter.check_interpreter),
    ]


def diagnose(diagnosis: Diagnosis, environment: Environment) -> List[Check]:
    """Every check, in the order of the groups."""
    return run_examinations(examinations(diagnosis), diagnosis, environment)


def run_examinations(
    found: List[Tuple[str, str, Examination]], diagnosis: Diagnosis, environment: Environment, limit_s: float = _ALL_S
) -> List[Check]:
    """Run examinations side by side; one that fails or does not end is a finding itself."""
    results: Dict[int, List[Check]] = {}

    def work(number: int, group: str, name: str, examine: Examination) -> None:
        try:
            results[number] = examine(diagnosis, environment)
        except Exception as error:  # noqa: BLE001 - a machine may be broken in ways nobody thought of
            results[number] = [_unknown(group, name, f"could not be checked: {type(error).__name__}: {error}")]

    deadline = time.monotonic() + limit_s
    # Daemons: a file system that does not answer must not keep us from ending.
    threads = [threading.Thread(target=work, args=(number, *each), daemon=True) for number, each in enumerate(found)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    except KeyboardInterrupt:  # the commands that we started are interrupted too, and clean up
        deadline = time.monotonic() + _CLEAN_UP_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        raise
    checks: List[Check] = []
    for number, (group, name, _) in enumerate(found):
        late = [_unknown(group, name, f"no answer within {limit_s:.0f} s: does a file system hang?")]
        checks += [clean(check) for check in results.get(number, late)]
    return sorted(checks, key=lambda check: _GROUPS.index(check.group) if check.group in _GROUPS else len(_GROUPS))


def _unknown(group: str, name: str, found: str) -> Check:
    return Check(group, name, WARNING, found, "check it by hand")
