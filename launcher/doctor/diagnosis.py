"""All checks at the same time, each with a limit, none of which can stop the others."""

from __future__ import annotations

import threading
import time
from typing import Callable, Dict, List, Tuple

from ipulaunch.launcher.doctor.answers import TIMEOUT_S
from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import OPENMPI, POPRUN, WARNING, Check, clean
from ipulaunch.launcher.doctor.clock import check_clock
from ipulaunch.launcher.doctor.cores import GROUP as MACHINE
from ipulaunch.launcher.doctor.cores import check_cores
from ipulaunch.launcher.doctor.interpreter import GROUP as PYTHON
from ipulaunch.launcher.doctor.interpreter import check_interpreter
from ipulaunch.launcher.doctor.leftovers import GROUP as LEFTOVERS
from ipulaunch.launcher.doctor.leftovers import check_leftovers
from ipulaunch.launcher.doctor.limits import check_limits
from ipulaunch.launcher.doctor.memory import check_memory
from ipulaunch.launcher.doctor.mpi import GROUP as ON_CPUS
from ipulaunch.launcher.doctor.mpi import check_mpirun
from ipulaunch.launcher.doctor.network import check_network
from ipulaunch.launcher.doctor.places import GROUP as PLACES
from ipulaunch.launcher.doctor.places import check_places
from ipulaunch.launcher.doctor.remote_hosts import check_hosts
from ipulaunch.launcher.doctor.sdk import GROUP as ON_IPUS
from ipulaunch.launcher.doctor.sdk import check_sdk
from ipulaunch.launcher.doctor.vipu import check_vipu
from ipulaunch.launcher.doctor.volumes import check_volumes
from ipulaunch.launcher.doctor.world import World

Examination = Callable[[Case, World], List[Check]]

_GROUPS = (ON_IPUS, ON_CPUS, PYTHON, MACHINE, PLACES, LEFTOVERS)  # in this order; hosts after them
_CLEAN_UP_S = 2.0
_ALL_S = TIMEOUT_S + 15  # longer than any check has for itself


def examinations(case: Case) -> List[Tuple[str, str, Examination]]:
    """What is looked at: the group and the name under which it is missed when it does not come to an end."""
    found: List[Tuple[str, str, Examination]] = []
    if case.looks_at(POPRUN):
        found += [(ON_IPUS, "SDK", check_sdk), (ON_IPUS, "V-IPU", check_vipu)]
    if case.looks_at(OPENMPI):
        found.append((ON_CPUS, "mpirun", check_mpirun))
    return [
        *found,
        (MACHINE, "cores", check_cores),
        (MACHINE, "memory", check_memory),
        (MACHINE, "limits", check_limits),
        (MACHINE, "network", check_network),
        (MACHINE, "clock", check_clock),
        (PLACES, "directories", check_places),
        (PLACES, "volumes", check_volumes),
        (LEFTOVERS, "leftovers", check_leftovers),
        ("hosts", "hosts", check_hosts),
        (PYTHON, "Python", check_interpreter),
    ]


def diagnose(case: Case, world: World, limit_s: float = _ALL_S) -> List[Check]:
    """Every check, in the order of the groups."""
    return carry_out(examinations(case), case, world, limit_s)


def carry_out(
    found: List[Tuple[str, str, Examination]], case: Case, world: World, limit_s: float = _ALL_S
) -> List[Check]:
    """Run examinations side by side; one that fails or does not end is a finding itself."""
    results: Dict[int, List[Check]] = {}

    def work(number: int, group: str, name: str, examine: Examination) -> None:
        try:
            results[number] = examine(case, world)
        except Exception as error:  # noqa: BLE001 - a machine may be broken in ways nobody thought of
            results[number] = [_unknown(group, name, f"could not be looked at: {type(error).__name__}: {error}")]

    deadline = time.monotonic() + limit_s
    # Daemons: a file system that does not answer must not keep us from ending.
    threads = [threading.Thread(target=work, args=(number, *each), daemon=True) for number, each in enumerate(found)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
    except KeyboardInterrupt:  # what we have started is interrupted too, and cleans up
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
    return Check(group, name, WARNING, found, "look at it by hand")
