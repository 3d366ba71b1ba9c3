"""The clock: records of a run are put in order by it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import List

from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import OK, WARNING, Check
from ipulaunch.launcher.doctor.cores import GROUP
from ipulaunch.launcher.doctor.world import World


def check_clock(case: Case, world: World) -> List[Check]:
    """Whether the clock is past the moment in which this file was written."""
    now = world.clock()
    found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < Path(__file__).stat().st_mtime:
        fix = "set it, and keep it set with chrony or ntp"
        return [Check(GROUP, "clock", WARNING, f"{found} is before ipulaunch was installed", fix)]
    return [Check(GROUP, "clock", OK, found)]
