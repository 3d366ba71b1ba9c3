"""The engines that there are, and which one a launch uses."""

from __future__ import annotations

import importlib
import os
from typing import Optional, Tuple, Type

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.text import ENABLE_SDK
from ipulaunch.launcher.engines import discovery
from ipulaunch.launcher.engines.engine import Engine

# Each is a module of this folder with its class as ENGINE. The first of a backend is the default there.
ENGINES = ("poprun", "openmpi", "direct")


def engine_class(name: str) -> Type[Engine]:
    """The engine of a name; its module is loaded when it is needed."""
    found: Type[Engine] = importlib.import_module(f"ipulaunch.launcher.engines.{name}").ENGINE
    return found


def default_engine(backend: str) -> str:
    """The engine that a backend has where none is named."""
    return next(name for name in ENGINES if engine_class(name).backend == backend)


def engines_that_need(need: str) -> Tuple[str, ...]:
    """The engines that cannot work on a machine without this."""
    return tuple(name for name in ENGINES if need in engine_class(name).needs)


def is_default(name: str) -> bool:
    """Whether the backend of a run is enough to know that this is its engine."""
    return name == default_engine(engine_class(name).backend)


def choose_engine(name: Optional[str], dry_run: bool) -> Engine:
    """poprun if the SDK is here, else Open MPI. A dry run prints for a POD unless the user names an engine."""
    if name is not None:
        return engine_class(name).of_this_machine()
    engine = engine_class(ENGINES[0]).of_this_machine()
    if engine.is_here or dry_run:
        return engine
    reason = "no poprun here; is the Poplar SDK enabled?"
    return engine_class(default_engine("cpu")).of_this_machine(reason)


def cluster_engine(name: Optional[str]) -> Engine:
    """The engine that a job uses on a cluster: this machine need not have it."""
    return engine_class(name or ENGINES[0])()


def silent_rehearsal(engine: Engine, name: Optional[str]) -> str:
    """The sign of an IPU system on a machine where this would be a rehearsal by default; empty elsewhere."""
    return discovery.ipus_in_sight(os.environ) if engine.is_rehearsal and name is None else ""


def refuse_silent_rehearsal(engine: Engine, name: Optional[str], how: str) -> None:
    """Refuse to rehearse on a machine of an IPU system unless the user asks for it: the SDK may not be enabled."""
    seen = silent_rehearsal(engine, name)
    if seen:
        raise NotReadyError(
            f"this machine belongs to an IPU system ({seen}), and poprun is not on the PATH: without it this would be a"
            " rehearsal on CPUs",
            hint=f"{ENABLE_SDK}; to rehearse, give {how}",
        )
