"""The Poplar SDK: whether it is enabled, and its poprun."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Tuple

from ipulaunch.configs.text import ENABLE_SDK
from ipulaunch.launcher.doctor.case import Case
from ipulaunch.launcher.doctor.check import MISSING, OK, POPRUN, WARNING, Check
from ipulaunch.launcher.doctor.world import World
from ipulaunch.launcher.engines.poprun_table import NEWEST

GROUP = "poprun, on IPUs"
_FIRST = (2, 6)  # that our workers know
_TIMEOUT_S = 20.0


def check_sdk(case: Case, world: World) -> List[Check]:
    """Whether the SDK is enabled, which one it is, and whether poprun answers, unless the run does without it."""
    return [_enabled(world), *([] if case.is_direct else [_poprun(world)]), *_fabric(world)]


def _enabled(world: World) -> Check:
    place = world.environ.get("POPLAR_SDK_ENABLED", "")
    if not place:
        if world.find(POPRUN):  # poprun works from its own directory; Python may not find popdist
            found = "POPLAR_SDK_ENABLED is not set, and there is a poprun"
            return Check(GROUP, "SDK", WARNING, found, ENABLE_SDK)
        return Check(GROUP, "SDK", MISSING, "not enabled: POPLAR_SDK_ENABLED is not set", ENABLE_SDK, (POPRUN,))
    if place.startswith("/") and not (world.root / place.lstrip("/")).exists():
        found = f"POPLAR_SDK_ENABLED names {place}, which is not there"
        return Check(GROUP, "SDK", MISSING, found, f"{ENABLE_SDK} in a new shell", (POPRUN,))
    match = re.search(r"poplar_sdk[^/]*?-(\d+\.\d+\.\d+)", place)
    if not match:
        return Check(GROUP, "SDK", OK, f"enabled: {place}")
    return _known("SDK", match.group(1), f"{match.group(1)}: {place}")


def _poprun(world: World) -> Check:
    path = world.find(POPRUN)
    if path is None:
        return Check(GROUP, "poprun", MISSING, "not on the PATH", ENABLE_SDK, (POPRUN,))
    said = world.run([path, "--version"], _TIMEOUT_S)
    if said.code != 0:
        found = f"{path} --version: {said.last_line or f'exit code {said.code}'}"
        return Check(GROUP, "poprun", MISSING, found, f"{ENABLE_SDK} again; it sets the library paths too", (POPRUN,))
    match = re.search(r"\d+\.\d+\.\d+", said.out + said.err)
    if not match:
        return Check(GROUP, "poprun", OK, f"{path}, which does not say its version")
    return _known("poprun", match.group(), f"{match.group()}: {path}")


def _known(name: str, version: str, found: str) -> Check:
    if not _FIRST <= _number(version) <= NEWEST:
        first, last = (".".join(map(str, each)) for each in (_FIRST, NEWEST))
        fix = f"enable an SDK from {first} to {last}: ipulaunch knows these"
        return Check(GROUP, name, WARNING, found, fix)
    return Check(GROUP, name, OK, found)


def _number(version: str) -> Tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _fabric(world: World) -> List[Check]:
    """A file that takes the place of the V-IPU controller, if one is named."""
    path = world.environ.get("IPUOF_CONFIG_PATH", "")
    if not path:
        return []
    there = "" if (world.root / str(Path(path)).lstrip("/")).exists() else ", and it is not there"
    found = f"IPUOF_CONFIG_PATH names {path}{there}: it takes the place of the V-IPU partition"
    return [Check(GROUP, "IPU fabric", WARNING, found, "unset IPUOF_CONFIG_PATH, so that poprun asks the V-IPU server")]
