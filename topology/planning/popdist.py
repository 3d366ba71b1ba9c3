"""The environment that PopRun gives an instance, from which the instance learns its place."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional

from ipulaunch.configs.errors import NotReadyError, UsageError
from ipulaunch.topology.planning.plan import Placement, Plan


class Place(NamedTuple):
    """The place of one instance among all, as PopDist describes it."""

    instance: int
    instances: int
    local_index: int
    local_instances: int
    first_replica: int
    local_replicas: int
    replicas: int
    ipus_per_replica: int


def environment(plan: Plan, placement: Placement) -> Dict[str, str]:
    """What PopRun sets for this instance."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": str(plan.replicas),
        "POPDIST_NUM_IPUS_PER_REPLICA": str(plan.ipus_per_replica),
        "POPDIST_NUM_LOCAL_REPLICAS": str(plan.replicas_per_instance),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "POPDIST_REPLICA_INDEX_OFFSET": str(placement.first_replica),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(placement.local_index),
    }


def has_place(environ: Mapping[str, str]) -> bool:
    """Whether the environment gives this instance its place, as poprun and our engines do."""
    return "POPDIST_NUM_TOTAL_REPLICAS" in environ


def read_place(environ: Mapping[str, str], alone: Optional[int] = None) -> Place:
    """The place in an instance's environment; a process started by hand is the only instance.

    `alone` is the number of replicas of such a process, if given.
    """
    if alone is not None:
        if alone < 1:
            raise UsageError(f"--num-replicas is {alone}, expected at least 1")
        if has_place(environ):
            told = environ["POPDIST_NUM_TOTAL_REPLICAS"]
            message = f"--num-replicas {alone}, and POPDIST_NUM_TOTAL_REPLICAS is {told}"
            raise UsageError(message, hint="leave --num-replicas out: poprun and mpirun tell an instance its replicas")
        environ = {"POPDIST_NUM_TOTAL_REPLICAS": str(alone), "POPDIST_NUM_LOCAL_REPLICAS": str(alone)}
    replicas = _count(environ, "POPDIST_NUM_TOTAL_REPLICAS", 1)
    local = _count(environ, "POPDIST_NUM_LOCAL_REPLICAS", 1)
    offset = _count(environ, "POPDIST_REPLICA_INDEX_OFFSET", 0)
    # PopRun names neither the number of instances nor the index; both follow, since all hold the same replicas.
    if not local or replicas % local or offset % local or offset >= replicas:
        raise NotReadyError(
            f"POPDIST_* do not fit together: {replicas} replicas, {local} of them here from index {offset}",
            hint="start the instances with poprun or ipulaunch, with as many replicas on each",
        )
    instances = replicas // local
    return Place(
        instance=offset // local,
        instances=instances,
        local_index=_count(environ, "POPDIST_LOCAL_INSTANCE_INDEX", 0),
        local_instances=_count(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", instances),
        first_replica=offset,
        local_replicas=local,
        replicas=replicas,
        ipus_per_replica=_count(environ, "POPDIST_NUM_IPUS_PER_REPLICA", 1),
    )


def _count(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise NotReadyError(f"{name} is {text!r}, expected a whole number", hint="poprun and ipulaunch set it")
    return int(text)
