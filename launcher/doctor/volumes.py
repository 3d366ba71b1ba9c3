"""CosmoFlow's volumes: as large as the job is for."""

from __future__ import annotations

from typing import List

from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import BOTH, MISSING, OK, Check
from ipulaunch.launcher.doctor.places import GROUP
from ipulaunch.launcher.doctor.world import World
from ipulaunch.launcher.launch.volumes import Look, looks


def check_volumes(case: Case, world: World) -> List[Check]:
    """One record of each split."""
    return [] if case.volumes is None else [_check(look, case.volumes.side) for look in looks(case.volumes)]


def _check(look: Look, side: int) -> Check:
    name = f"{look.file.parent.name} volumes"
    if look.wrong:
        return Check(GROUP, name, MISSING, f"{look.file}: {look.wrong}", look.fix, BOTH)
    return Check(GROUP, name, OK, f"{side} x {side} x {side}, by the first record of {look.file.name}")
