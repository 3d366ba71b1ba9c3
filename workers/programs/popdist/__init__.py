"""PopDist for a rehearsal without the Poplar SDK: where an instance is among the others.

ipulaunch puts this package last on the path of the programs that it rehearses. If the SDK's own PopDist is installed,
that one takes its place. What needs an IPU is refused. Nothing of ipulaunch is imported: a program may have another
Python.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any, Callable, Set

_HERE = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))  # noqa: PTH120, PTH118
_NEEDS_IPUS = "needs IPUs and the Poplar SDK, and this is a rehearsal on CPUs: call it only where there are IPUs"
_is_initialized = False


def isPopdistEnvSet() -> bool:
    """Whether poprun or ipulaunch started this process."""
    return "POPDIST_NUM_TOTAL_REPLICAS" in os.environ


def getNumTotalReplicas() -> int:
    """The replicas of all instances."""
    return _number("NUM_TOTAL_REPLICAS", 1)


def getNumLocalReplicas() -> int:
    """The replicas of this instance."""
    return _number("NUM_LOCAL_REPLICAS", 1)


def getReplicaIndexOffset() -> int:
    """The first replica of this instance among those of all."""
    return _number("REPLICA_INDEX_OFFSET", 0)


def getNumIpusPerReplica() -> int:
    """The IPUs of one replica."""
    return _number("NUM_IPUS_PER_REPLICA", 1)


def getNumInstances() -> int:
    """The instances on all hosts: each has as many replicas."""
    return getNumTotalReplicas() // getNumLocalReplicas()


def getInstanceIndex() -> int:
    """The number of this instance among those of all hosts."""
    return getReplicaIndexOffset() // getNumLocalReplicas()


def getLocalInstanceIndex() -> int:
    """The number of this instance among those of its host."""
    return _number("LOCAL_INSTANCE_INDEX", 0)


def checkNumIpusPerReplica(ipus: int) -> bool:
    """Whether a replica has so many IPUs."""
    return ipus == getNumIpusPerReplica()


def init() -> None:
    """Nothing: there is no communication between the hosts to start."""
    global _is_initialized
    _is_initialized = True


def isBackendInitialized() -> bool:
    """Whether init() was called."""
    return _is_initialized


def finalizeBackend() -> None:
    """Nothing: there is no communication between the hosts to end."""
    global _is_initialized
    _is_initialized = False


def execute_on_instances(instances: Set[int], func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on some instances, and give back what it returns; None on the others."""
    return func(*args, **kwargs) if getInstanceIndex() in instances else None


def getDeviceId(ipusPerReplica: int = 0) -> int:
    """Refused: there is no device."""
    raise RuntimeError(f"popdist.getDeviceId() {_NEEDS_IPUS}")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"popdist.{name} {_NEEDS_IPUS}")


def _number(name: str, default: int) -> int:
    return int(os.environ.get(f"POPDIST_{name}", default))


def _give_way() -> None:
    """Put the PopDist of the SDK in the place of this one, where there is one."""
    others = [path for path in sys.path if os.path.realpath(path) != _HERE]
    found = importlib.machinery.PathFinder.find_spec("popdist", others)
    if found is not None and found.loader is not None and __name__ == "popdist":
        module = importlib.util.module_from_spec(found)
        sys.modules["popdist"] = module
        found.loader.exec_module(module)


_give_way()
