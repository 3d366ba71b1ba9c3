"""A line that was pasted: no launcher has planned it, so its instances write down the plan that they find."""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence, Tuple

from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.job import Job, to_yaml
from ipulaunch.topology.machines import hostlist, hosts, pods
from ipulaunch.topology.planning.batch import Batch, make_batch
from ipulaunch.topology.planning.plan import Placement, Plan, to_json
from ipulaunch.topology.planning.popdist import Place
from ipulaunch.workers.lifecycle.binding import Binding

if TYPE_CHECKING:
    from ipulaunch.workers.backends.collective import Collective


def batch_of(job: Job, replicas: int) -> Batch:
    """The batch that the settings ask for; a warning shows a global batch that is rounded."""
    training = job.settings.training
    batch, warnings = make_batch(
        training.micro_batch_size,
        replicas,
        training.gradient_accumulation_count,
        training.global_batch_size,
        job.settings.micro_batches_per_turn,
        job.settings.least_accumulation,
    )
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return batch


def plan_of_pasted_line(
    job: Job, batch: Batch, place: Place, binding: Binding, each: Callable[[str], List[str]]
) -> Plan:
    """The plan that fits what the instances find; `each()` gives what all of them say, on all."""
    nodes = [node.number for node in hosts.discover("").nodes]  # those that we are bound to
    about = {"host": platform.node(), "numa_nodes": nodes, "cores": binding.cores, "cpus": binding.cpus}
    found = [json.loads(text) for text in each(json.dumps(about))]
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
    names = _host_names([str(about["host"]) for about in found])
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


def _host_names(found: Sequence[str]) -> List[str]:
    """Names that a plan can have: a single host needs none, and one whose name is not valid gets a number."""
    different = list(dict.fromkeys(found))
    if len(different) == 1:
        return [hostlist.LOCALHOST] * len(found)
    return [name if hostlist.is_name(name) else f"host{different.index(name)}" for name in found]


def _shares_cores(found: Sequence[Dict[str, Any]]) -> bool:
    """Whether a host has more instances than it has cores for them."""
    for host in {about["host"] for about in found}:
        there = [about for about in found if about["host"] == host]
        if len(there) > sum({about["cpus"]: about["cores"] for about in there}.values()):
            return True
    return False


def make_run(
    job: Job, batch: Batch, place: Place, binding: Binding, collective: Collective
) -> Tuple[RunDirectory, Plan]:
    """The run directory of a pasted line, and its plan: instance 0 writes them, all use them."""
    # Not before: NumPy has as many threads as the environment says when it is imported.
    from ipulaunch.workers.backends.collective import texts_of

    plan = plan_of_pasted_line(job, batch, place, binding, lambda text: texts_of(collective, text))
    agree = collective.first
    run = RunDirectory(Path(agree(f"runs/{job.workload}-{time.strftime('%Y%m%d-%H%M%S')}")))
    if place.instance == 0:
        run.path.mkdir(parents=True, mode=0o700)
        write_whole(run.plan, to_json(plan))
        write_whole(run.job, to_yaml(job))
        print(f"run directory: {run.path}", flush=True)
    agree("made")  # nobody writes before it is there
    return run, plan
