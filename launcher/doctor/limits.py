"""Limits of the shell: open files, processes, locked memory."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from ipulaunch.configs.text import counted
from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import OK, POPRUN, WARNING, Check, amount
from ipulaunch.launcher.doctor.cores import GROUP
from ipulaunch.launcher.doctor.world import World
from ipulaunch.topology.machines.cgroups import tightest

_FILES, _FILES_EACH = 64, 16  # of mpirun: its own, and pipes and sockets for an instance
_THREADS_EACH, _THREADS_PER_CORE = 40, 4  # of an instance: TensorFlow's pools
_LOCKED = 64 << 20  # less than that, and the IPUs' network cards have nothing to work with


def check_limits(case: Case, world: World) -> List[Check]:
    """The limits against what the instances of this host take."""
    text = world.read("proc/self/limits")
    checks = [_files(case, text), _processes(case, text, world)]
    if case.looks_at(POPRUN):
        checks.append(_locked(text))
    return checks


def _files(case: Case, text: str) -> Check:
    soft, hard = _limit(text, "Max open files")
    need = _FILES + _FILES_EACH * case.instances
    found = f"at most {_number(soft)}"
    if soft is not None and soft < need:
        found += f", for {counted(case.instances, 'instance')}"
        can = hard is None or hard >= need
        fix = f"ulimit -n {need}" if can else f"ask for a hard limit of {need}; it is {_number(hard)}"
        return Check(GROUP, "open files", WARNING, found, fix)
    return Check(GROUP, "open files", OK, found)


def _processes(case: Case, text: str, world: World) -> Check:
    shell, _ = _limit(text, "Max processes")
    group = tightest("pids", "pids.max", "pids.max", world.root)
    known = [limit for limit in (shell, group) if limit is not None]
    least = min(known) if known else None
    need = case.instances * (_THREADS_EACH + _THREADS_PER_CORE * case.cores)
    found = f"at most {_number(least)}"
    if least is not None and least < need:
        where = "the pids limit of the container" if least == group else "ulimit -u"
        found += f" threads and processes, and {counted(case.instances, 'instance')} take about {need}"
        return Check(GROUP, "processes", WARNING, found, f"raise {where} to {need} or more")
    return Check(GROUP, "processes", OK, found)


def _locked(text: str) -> Check:
    soft, _ = _limit(text, "Max locked memory")
    found = "no limit" if soft is None else f"at most {amount(soft)}"
    if soft is not None and soft < _LOCKED:
        fix = "for IPUs: ulimit -l unlimited; in a container the capability IPC_LOCK and --ulimit memlock=-1"
        return Check(GROUP, "locked memory", WARNING, found, fix)
    return Check(GROUP, "locked memory", OK, found)


def _limit(text: str, name: str) -> Tuple[Optional[int], Optional[int]]:
    """The soft and the hard limit; None is no limit, or none that is known."""
    match = re.search(rf"^{name}\s+(\S+)\s+(\S+)", text, re.MULTILINE)
    soft, hard = match.groups() if match else ("", "")
    return (int(soft) if soft.isdecimal() else None), (int(hard) if hard.isdecimal() else None)


def _number(limit: Optional[int]) -> str:
    return "as many as there is room for" if limit is None else str(limit)
