"""What the user asks for: where and how to launch, and what starts the instances."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.text import ENABLE_SDK
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.poprun_table import OFFERED, is_given

# Options that can only be switched on: False where they are not given. Others are None there.
FLAGS = ("oversubscribe", "tag_output")
ONE_PROCESS = "one process, without poprun"


class LaunchOptions(NamedTuple):
    """What the command line says about where and how to launch. None is "not given"."""

    pod: Optional[str] = None
    ipus: Optional[int] = None
    hosts: Optional[str] = None
    hostfile: Optional[Path] = None
    host_layout: Optional[str] = None
    ilds: Optional[int] = None
    oversubscribe: bool = False
    engine: Optional[str] = None
    python: Optional[str] = None
    openmpi_version: Optional[int] = None
    sdk: Optional[Tuple[int, int]] = None
    env: Tuple[str, ...] = ()
    tag_output: bool = False
    mpi_global_args: Tuple[str, ...] = ()
    mpi_local_args: Tuple[str, ...] = ()
    allow_run_as_root: Optional[bool] = None
    poprun: Mapping[str, Any] = {}  # by the keys of poprun_table.OFFERED
    poprun_args: Tuple[str, ...] = ()


def poprun_below(given: Mapping[str, Any], below: Mapping[str, Any]) -> Dict[str, Any]:
    """What counts of options below those that are given: an allocation replaces a cluster, and the reverse."""
    replaced = {OFFERED[key].instead for key, value in given.items() if is_given(value)}
    return {key: value for key, value in below.items() if OFFERED[key].name not in replaced}


class Engine(NamedTuple):
    """What will start the instances, and whether it is on this machine."""

    name: str  # "poprun", "openmpi" or "direct"
    is_here: bool
    about: str  # one line for the user

    @property
    def backend(self) -> str:
        return "cpu" if self.name == "openmpi" else "ipu"


def choose_engine(asked: Optional[str], dry_run: bool) -> Engine:
    """poprun when the SDK is here, else Open MPI; a dry run prints for a POD unless told otherwise."""
    has_poprun = discovery.find_poprun() is not None
    name = asked or ("poprun" if has_poprun or dry_run else "openmpi")
    if name == "poprun":
        return Engine(name, has_poprun, "poprun")
    if name == "direct":
        return Engine(name, has_poprun or bool(os.environ.get("POPLAR_SDK_ENABLED")), ONE_PROCESS)
    reason = "" if asked else " (no poprun here; is the Poplar SDK enabled?)"
    return Engine(name, discovery.find_mpirun() is not None, f"rehearsal on CPUs over Open MPI{reason}")


def silent_rehearsal(engine: Engine, asked: Optional[str]) -> str:
    """What shows an IPU system where a rehearsal would run that nobody asked for; nothing elsewhere."""
    return discovery.ipus_in_sight(os.environ) if engine.name == "openmpi" and asked is None else ""


def refuse_silent_rehearsal(engine: Engine, asked: Optional[str], how: str) -> None:
    """Refuse to rehearse on a machine of an IPU system unless it was asked for: the SDK may just not be enabled."""
    seen = silent_rehearsal(engine, asked)
    if seen:
        raise NotReadyError(
            f"this machine belongs to an IPU system ({seen}), and poprun is not on the PATH: without it this would be a"
            " rehearsal on CPUs",
            hint=f"{ENABLE_SDK}; to rehearse, give {how}",
        )
