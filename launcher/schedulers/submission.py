"""From what the user asked for to a job: the plan, the command and the scheduler's options, all decided."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import JobError, UsageError
from ipulaunch.configs.job import to_yaml
from ipulaunch.configs.run_directory import RunDirectory, write_whole
from ipulaunch.configs.sites import SCHEDULERS, Site
from ipulaunch.configs.workloads import Resolved
from ipulaunch.launcher.earlier_runs import AUTO, with_resume
from ipulaunch.launcher.launch import Asked, Engine, Launch, launch_workload, plan_workload
from ipulaunch.launcher.schedulers import record, time_limit
from ipulaunch.launcher.schedulers.job import ClusterJob, Wishes
from ipulaunch.launcher.schedulers.pinned import again_words, at_site, first_words
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.scheduler import scheduler_of
from ipulaunch.topology import hostlist
from ipulaunch.topology.plan import to_json

_LEAD_MARGIN_S = 60  # Slurm's signals come up to a minute off
# Options that only some schedulers have a use for.
_ONLY = {
    "account": ("slurm", "pbs"),
    "partition": ("slurm", "pbs"),
    "mail_user": ("slurm", "pbs"),
    "mail_types": ("slurm", "pbs"),
    "directives": ("slurm", "pbs"),
    "nodelist": ("slurm",),
    "namespace": ("kubernetes",),
    "volumes": ("kubernetes",),
}
_FLAGS = {"mail_types": "--mail-type", "directives": "--directive", "volumes": "--volume", "nodelist": "--hosts"}


class Submission(NamedTuple):
    """A job that can be printed or handed over: a dry run is stopping here."""

    scheduler: str
    job: ClusterJob
    text: str
    launch: Launch
    path: Path  # the run directory here
    notes: Tuple[str, ...]


def engine_for(name: Optional[str]) -> Engine:
    """The engine of the cluster, which need not be here."""
    about = "poprun" if name in (None, "poprun") else "rehearsal on CPUs over Open MPI"
    return Engine(name or "poprun", False, about)


def choose_scheduler(asked: Optional[str], site: Site) -> str:
    """The scheduler that was named, or that of the site."""
    found = asked or site.scheduler
    if found is None:
        raise UsageError("no scheduler is named", hint=f"give --scheduler {'|'.join(SCHEDULERS)}, or a --site")
    return found


def wishes_from(options: Mapping[str, Any], site: Site, grace_s: float) -> Wishes:
    """What the scheduler is told: the command line over the site."""
    for name, value in options.items():
        if value == "":
            raise UsageError(f"--{name.replace('_', '-')} is empty", hint="is the variable that it came from set?")
    defaults = site.defaults
    limit = options["time"] or defaults.time
    time_s = None if limit is None else time_limit.seconds(limit)
    lead_s: int = options["signal_lead"] or math.ceil(grace_s) + _LEAD_MARGIN_S
    if time_s is not None and lead_s >= time_s:
        raise UsageError(
            f"the job is asked to stop {lead_s} s before its limit of {time_s} s",
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
        lead_s=lead_s,
    )


def prepare(
    resolved: Resolved,
    asked: Asked,
    engine: Engine,
    scheduler: str,
    site: Site,
    options: Mapping[str, Any],
    path: Path,
    *,
    verbose: bool = False,
) -> Submission:
    """The whole job, decided and rendered; nothing is written and nobody is asked."""
    wishes = wishes_from(options, site, resolved.settings.survival.grace_s)
    notes: List[str] = []
    if asked.host_layout is None and site.hosts.layout is not None:
        asked = asked._replace(host_layout=site.hosts.layout)
    if asked.host_layout is None and engine.name == "openmpi":
        notes.append("planned for hosts like this one; --host-layout or a site says what others have")
    asked, hosts, nodelist = _hosts(resolved, asked, engine, site, options["nodes"])
    wishes = wishes._replace(nodelist=nodelist)
    _refuse_useless(wishes, scheduler)
    resolved = _resumed(resolved, scheduler)
    asked = at_site(asked, site, hosts, engine)
    _refuse_forwarding(asked, scheduler)
    launch = launch_workload(resolved, asked, engine, None)
    if wishes.image and hosts > 1 and scheduler != "kubernetes":
        raise UsageError(f"--container-image on {hosts} hosts: MPI would start the others outside the image")
    name, run = path.name, str(path)
    if scheduler == "kubernetes":
        from ipulaunch.launcher.schedulers.kubernetes import job_name, volume

        name = job_name(path.name)
        run = f"{volume(wishes.volumes[0])[1].rstrip('/')}/runs/{name}" if wishes.volumes else f"/tmp/runs/{name}"
        if not wishes.volumes:
            notes.append("without --volume the run and its checkpoints are gone with the Pod")
    plan, more = launch.solution.plan, ["--verbose"] if verbose else []
    job = ClusterJob(
        name=name,
        run=run,
        work_dir=str(Path.cwd()),
        plan=plan,
        is_rehearsal=engine.name == "openmpi",
        first=(*first_words(resolved, asked, engine, plan), *more),
        again=(*again_words(asked, engine, plan), *more),
        wishes=wishes,
        site=site,
    )
    text = scheduler_of(scheduler).render(job)
    return Submission(scheduler, job, text, launch, path, (*notes, *launch.notes))


def hand_over(submission: Submission) -> Submitted:
    """Make the run directory, give the job to the scheduler and record what it is called."""
    scheduler = scheduler_of(submission.scheduler)
    run = RunDirectory(submission.path)
    script = submission.path / scheduler.file_name
    try:
        submission.path.parent.mkdir(parents=True, exist_ok=True)
        submission.path.mkdir(mode=0o700)
    except OSError as error:
        raise UsageError(f"the run directory {submission.path} cannot be made: {error.strerror}") from error
    names: Mapping[str, str] = {}
    try:
        write_whole(run.plan, to_json(submission.launch.solution.plan))
        if submission.launch.job is not None:
            write_whole(run.job, to_yaml(submission.launch.job))
        write_whole(script, submission.text)
        names = scheduler.submit(str(script))
    except OSError as error:
        raise UsageError(f"{submission.path} cannot be written: {error.strerror}") from error
    finally:
        if not names:  # a run that nobody will carry out
            shutil.rmtree(submission.path, ignore_errors=True)
    workload = submission.job.plan.workload
    job = Submitted(
        scheduler=submission.scheduler, script=script.name, submitted=record.now(), workload=workload, **names
    )
    try:
        record.write(submission.path, job)
    except OSError as error:
        raise JobError(
            f"{job.scheduler} has the job as {job.id}, which cannot be recorded: {error.strerror}"
        ) from error
    return job


def _hosts(
    resolved: Resolved, asked: Asked, engine: Engine, site: Site, nodes: Optional[int]
) -> Tuple[Asked, int, Optional[str]]:
    """How many hosts, with names to plan with; those that the user names are asked for."""
    if asked.hosts is not None or asked.hostfile is not None:
        if asked.hosts is not None and asked.hostfile is not None:
            raise UsageError("--hosts and --hostfile are both given", hint="give one of them")
        names = (
            hostlist.parse(asked.hosts) if asked.hosts is not None else hostlist.read_file(Path(str(asked.hostfile)))
        )
        if nodes not in (None, len(names)):
            raise UsageError(f"--nodes {nodes}, and {len(names)} hosts are named", hint="leave --nodes out")
        return asked, len(names), hostlist.render(names)
    if nodes is None:
        plan = plan_workload(resolved, asked, engine, hosts_need_names=False).plan
        nodes = len(plan.hosts)
        if site.hosts.ipus_per_host is not None and engine.name == "poprun":
            nodes = math.ceil(plan.ipus / site.hosts.ipus_per_host)
    if nodes > 1:
        asked = asked._replace(hosts=f"host[0-{nodes - 1}]")
    return asked, nodes, None


def _refuse_useless(wishes: Wishes, scheduler: str) -> None:
    for name, schedulers in _ONLY.items():
        if getattr(wishes, name) and scheduler not in schedulers:
            flag = _FLAGS.get(name, "--" + name.replace("_", "-"))
            raise UsageError(f"{flag} means nothing to {scheduler}", hint=f"it is for {' and '.join(schedulers)}")


def _refuse_forwarding(asked: Asked, scheduler: str) -> None:
    for text in asked.env:
        if scheduler == "kubernetes" and "=" not in text:
            raise UsageError(f"--env {text}: the variables here do not reach a Pod", hint=f"give --env {text}=VALUE")
        if "=" not in text and text not in os.environ:
            raise UsageError(f"--env {text}: it is not set here", hint=f"give --env {text}=VALUE")


def _resumed(resolved: Resolved, scheduler: str) -> Resolved:
    """The run to continue as a path; what a Pod sees is not here to be looked at."""
    if scheduler != "kubernetes":
        return with_resume(resolved)
    if resolved.settings.training.resume == AUTO:
        raise UsageError("--resume auto looks for runs here, and a Pod has its own", hint="name the run on the volume")
    return resolved
