"""The plan of instances that no launcher has planned: as they find themselves, written down so that all can read it."""

from __future__ import annotations

import json
import platform
from typing import Any, Callable, Dict, List, Sequence

from ipulaunch.configs.runs.job import Job
from ipulaunch.topology.machines import hostlist, hosts, pods
from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.plan import Placement, Plan
from ipulaunch.topology.planning.popdist import Place
from ipulaunch.workers.lifecycle.binding import Binding


def plan_of_pasted_line(
    job: Job, batch: Batch, place: Place, binding: Binding, each: Callable[[str], List[str]]
) -> Plan:
    """The plan that fits what is there; `each()` gives what all instances tell, on all."""
    nodes = [node.number for node in hosts.discover("").nodes]  # those that we are bound to
    told = {"host": platform.node(), "numa_nodes": nodes, "cores": binding.cores, "cpus": binding.cpus}
    found = [json.loads(text) for text in each(json.dumps(told))]
    ipus = place.replicas * place.ipus_per_replica
    return Plan(
        workload=job.workload,
        system=pods.of_size(ipus).name,
        replicas=place.replicas,
        ipus_per_replica=place.ipus_per_replica,
        ilds=pods.usual_ilds(ipus),
        batch=batch,
        placements=tuple(_placements(found, place.local_replicas)),
        oversubscribed=_shares_cores(found),
    )


def _placements(found: Sequence[Dict[str, Any]], replicas: int) -> List[Placement]:
    names = [str(about["host"]) for about in found]
    if len(set(names)) == 1 or not all(map(hostlist.is_name, names)):
        names = [hostlist.LOCALHOST] * len(names)
    return [
        Placement(
            instance=index,
            host=names[index],
            local_index=names[:index].count(names[index]),
            numa_nodes=tuple(about["numa_nodes"]),
            cores=about["cores"],
            cpus=about["cpus"],
            first_replica=index * replicas,
        )
        for index, about in enumerate(found)
    ]


def _shares_cores(found: Sequence[Dict[str, Any]]) -> bool:
    """Whether a host has more instances than it has cores for them."""
    for host in {about["host"] for about in found}:
        there = [about for about in found if about["host"] == host]
        if len(there) > sum({about["cpus"]: about["cores"] for about in there}.values()):
            return True
    return False
