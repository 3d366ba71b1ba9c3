"""What an instance does before it imports TensorFlow: read its plan and its job, bind, and size its thread pools."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import NotReadyError
from ipulaunch.configs.runs.directory import RunDirectory
from ipulaunch.configs.runs.job import Job, from_yaml
from ipulaunch.configs.runs.untrusted import read_text
from ipulaunch.topology.planning import popdist
from ipulaunch.topology.planning.batch import Batch
from ipulaunch.topology.planning.plan import Plan, from_json
from ipulaunch.topology.planning.popdist import Place
from ipulaunch.topology.planning.refusals import ipus_needed
from ipulaunch.workers.backends.ipu.environment import flags
from ipulaunch.workers.lifecycle.binding import Binding, Threads, bind_as_planned, bind_share, size_pools
from ipulaunch.workers.pasted_line import batch_of


class Start(NamedTuple):
    """An instance that is bound, and has not met the others yet."""

    job: Job
    place: Place
    batch: Batch
    binding: Binding
    launched: Optional[Tuple[RunDirectory, Plan]]  # what the launcher has made; a pasted line makes it with the others


def start_launched(run: RunDirectory, place: Place) -> Start:
    """Start as the plan in a run directory says."""
    try:
        plan, job = from_json(read_text(run.plan)), from_yaml(read_text(run.job), str(run.job))
    except OSError as error:
        hint = "every host must see the run directory under this path; see --run-dir of ipulaunch"
        raise NotReadyError(f"the run directory cannot be read: {error}", hint=hint) from error
    if not popdist.has_place(os.environ):  # one process alone, with all the replicas
        place = popdist.read_place({}, plan.replicas)._replace(ipus_per_replica=plan.ipus_per_replica)
    if (plan.replicas, plan.instances) != (place.replicas, place.instances):
        raise NotReadyError(
            f"the plan has {plan.replicas} replicas in {plan.instances} instances,"
            f" POPDIST_* say {place.replicas} in {place.instances}",
            hint="start the command in command.txt of the run directory as it is",
        )
    return Start(job, place, plan.batch, bind_as_planned(plan.placements[place.instance]), (run, plan))


def start_pasted(job: Job, place: Place) -> Start:
    """Start with this job where no launcher has planned anything."""
    on_ipus = not job.is_rehearsal
    if on_ipus and not popdist.has_place(os.environ):
        place = place._replace(ipus_per_replica=ipus_needed(job.settings.pipeline))
    batch = batch_of(job, place.replicas)
    # poprun has bound its instances before they start: all that we see is ours.
    binding = bind_share(0, 1) if on_ipus else bind_share(place.local_index, place.local_instances)
    return Start(job, place, batch, binding, None)


def prepare_tensorflow(start: Start) -> Threads:
    """Set what TensorFlow reads from the environment when it is imported."""
    threads = size_pools(start.binding.cores, start.job, os.environ)
    if not start.job.is_rehearsal:
        os.environ.update(flags(start.job.settings, os.environ))
    return threads
