"""Which instance ended first: by the records of those that waited for programs, or by the words of Open MPI."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.last_records import read_exited
from ipulaunch.topology import Plan


class Blame(NamedTuple):
    """The instance that ended first, and how."""

    instance: int
    signal: int = 0
    exit_code: int = 0

    @property
    def text(self) -> str:
        if self.signal:
            return f"was ended by signal {self.signal}"
        return f"ended with exit code {self.exit_code}" + ("" if self.exit_code else " and without its done.json")


def blamed_by_records(run: RunDirectory, plan: Plan, ended_ns: Optional[int]) -> Optional[Blame]:
    """The program that failed first; those that ended since the launcher began to end the run have not failed."""
    records = ((placement.instance, read_exited(run, placement.instance)) for placement in plan.placements)
    failed = [(record.time_ns, instance, record) for instance, record in records if record and record.has_failed]
    if not failed:
        return None
    time_ns, instance, record = min(failed, key=lambda one: one[:2])
    if ended_ns is not None and time_ns >= ended_ns:
        return None
    return Blame(instance, record.signal, record.exit_code)


def blamed_by_engine(text: str, plan: Plan, code: int) -> Optional[Blame]:
    """The instance that Open MPI says ended first; its number is that of the application context.

    It says nothing where one fails after another has left, nor of an only instance, but ends as that one did.
    """
    killed = re.search(r"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)", text)
    exited = re.search(r"Process name: \[.*,(\d+)\]\s+Exit code: +(\d+)", text)
    left = re.search(r"process rank (\d+) with PID \d+ on node \S+ exiting\s+improperly", text)
    found = (
        killed and Blame(int(killed[1]), signal=int(killed[2])),
        exited and Blame(int(exited[1]), exit_code=int(exited[2])),
        left and Blame(int(left[1])),
    )
    for blame in found:
        if blame is not None and blame.instance < plan.instances:
            return blame
    return Blame(0, exit_code=code) if plan.instances == 1 and code > 0 and not text.strip() else None
