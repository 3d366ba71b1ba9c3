"""The options for the scheduler: those of the command line over those of the site."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.sites import SCHEDULERS, Site
from ipulaunch.launcher.schedulers import time_limit
from ipulaunch.launcher.schedulers.job import Wishes

_LEAD_MARGIN_S = 60  # Slurm's signals can come a minute early or late
# Options that only some schedulers use.
_ONLY = {
    "account": ("slurm", "pbs"),
    "partition": ("slurm", "pbs"),
    "mail_user": ("slurm", "pbs"),
    "mail_types": ("slurm", "pbs"),
    "directives": ("slurm", "pbs"),
    "nodelist": ("slurm",),
    "namespace": ("kubernetes",),
    "volumes": ("kubernetes",),
    "labels": ("kubernetes",),
    "annotations": ("kubernetes",),
    "queue": ("kubernetes",),
}
_FLAGS = {
    "mail_types": "--mail-type",
    "directives": "--directive",
    "volumes": "--volume",
    "nodelist": "--hosts",
    "labels": "--label",
    "annotations": "--annotation",
}


def choose_scheduler(name: Optional[str], site: Site) -> str:
    """The named scheduler, or the site's."""
    found = name or site.scheduler
    if found is None:
        raise UsageError("no scheduler is named", hint=f"give --scheduler {'|'.join(SCHEDULERS)}, or a --site")
    return found


def wishes_from(options: Mapping[str, Any], site: Site, grace_s: float) -> Wishes:
    """The options for the scheduler: the command line over the site."""
    for name, value in options.items():
        if value == "":
            raise UsageError(f"--{name.replace('_', '-')} is empty", hint="is the variable that it came from set?")
    defaults = site.defaults
    limit = options["time"] or defaults.time
    time_s = None if limit is None else time_limit.seconds(limit)
    lead_s: int = options["signal_lead"] or math.ceil(grace_s) + _LEAD_MARGIN_S
    by_default = "" if options["signal_lead"] else f": --grace {grace_s:g} and {_LEAD_MARGIN_S} more"
    if time_s is not None and lead_s >= time_s:
        raise UsageError(
            f"the job is asked to stop {lead_s} s before its limit of {time_s} s{by_default}",
            hint="use a longer --time, or a shorter --grace or --signal-lead",
        )
    return Wishes(
        account=options["account"] or defaults.account,
        partition=options["partition"] or defaults.partition,
        time_s=time_s,
        requeue=defaults.requeue if options["requeue"] is None else options["requeue"],
        mail_user=options["mail_user"],
        mail_types=tuple(options["mail_type"]),
        directives=(*defaults.directives, *options["directive"]),
        setup=tuple(options["setup"]),
        image=options["container_image"] or site.container.image,
        namespace=options["namespace"] or site.kubernetes.namespace,
        volumes=(*site.kubernetes.volumes, *options["volume"]),
        labels=tuple(options["label"]),
        annotations=tuple(options["annotation"]),
        queue=options["queue"],
        lead_s=lead_s,
        nodes=options["nodes"],
    )


def refuse_useless(wishes: Wishes, scheduler: str, signal_lead: Optional[int]) -> None:
    """Refuse options that this scheduler would ignore."""
    for name, schedulers in _ONLY.items():
        if getattr(wishes, name) and scheduler not in schedulers:
            flag = _FLAGS.get(name, "--" + name.replace("_", "-"))
            raise UsageError(f"{flag} means nothing to {scheduler}", hint=f"it is for {' and '.join(schedulers)}")
    if signal_lead and wishes.time_s is None and scheduler != "kubernetes":  # Pods always have it
        raise UsageError(
            f"--signal-lead {signal_lead} has no effect without --time",
            hint=f"give --time: {scheduler} jobs are asked to stop before their limit of time",
        )


def name_and_place(path: Path, scheduler: str, wishes: Wishes) -> Tuple[str, str]:
    """The name of a job, and its run directory as the job sees it: Pods have it on their first volume."""
    if scheduler != "kubernetes":
        return path.name, str(path)
    from ipulaunch.launcher.schedulers.kubernetes import job_name, volume

    name = job_name(path.name)
    runs = volume(wishes.volumes[0])[1].rstrip("/") if wishes.volumes else "/tmp"
    return name, f"{runs}/runs/{name}"
