"""Which system a job is for."""

from __future__ import annotations

from typing import NamedTuple, Optional

from ipulaunch.configs.errors import PlanError
from ipulaunch.configs.pods import Catalogue
from ipulaunch.configs.text import counted

IPUS_PER_ILD = 64
_MOST_IPUS = 1 << 16  # far beyond any POD; plan.json is read back up to this many instances


def usual_ilds(ipus: int) -> int:
    """The number of IPU-Link domains that this many IPUs occupy."""
    return max(1, ipus // IPUS_PER_ILD)


class System(NamedTuple):
    """IPUs that one job can have, and the hosts that come with them."""

    name: str
    ipus: int
    hosts: int
    max_hosts: Optional[int]  # None if no build guide sets a limit

    def hosts_of(self, ipus: int) -> int:
        """The hosts that come with a part of it."""
        return max(1, self.hosts * min(ipus, self.ipus) // self.ipus)


def find(pod: str, catalogue: Catalogue) -> System:
    """The POD a user means by `16`, `pod16` or `bow-pod16`."""
    name = pod.lower()
    if name.isdigit():
        name = f"pod{name}"
    entry = catalogue.pods.get(name)
    if entry is None:
        raise PlanError(f"there is no POD {pod}", hint=_nearest(pod, catalogue))
    return System(name, entry.ipus, entry.hosts, entry.max_hosts)


def of_size(ipus: int) -> System:
    """A system outside the catalogue, described by its number of IPUs."""
    if ipus > _MOST_IPUS:
        raise PlanError(f"{ipus} IPUs, and a plan has at most {_MOST_IPUS}", hint=f"use --ipus {_MOST_IPUS} or fewer")
    return System(counted(ipus, "IPU"), ipus, usual_ilds(ipus), None)


def _nearest(pod: str, catalogue: Catalogue) -> str:
    digits = "".join(character for character in pod if character.isdecimal())[:9]
    sizes = sorted({entry.ipus for entry in catalogue.pods.values()})
    names = ", ".join(catalogue.pods)
    if not digits:
        return f"known: {names}"
    nearest = min(sizes, key=lambda size: abs(size - int(digits)))
    family = "bow-pod" if "bow" in pod.lower() else ""
    return f"the nearest is --pod {family}{nearest}; known: {names}; other sizes: --ipus N"
