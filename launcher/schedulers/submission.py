"""From what the user asked for to a job: the plan, the command and the scheduler's options, all decided."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from ipulaunch.configs.errors import IpulaunchError, JobError, PlanError, UsageError
from ipulaunch.configs.pods import read_catalogue
from ipulaunch.configs.runs.directory import RunDirectory, write_whole
from ipulaunch.configs.runs.job import to_yaml
from ipulaunch.configs.settings.workloads import Resolved
from ipulaunch.configs.sites import SCHEDULERS, Site
from ipulaunch.configs.text import counted, utc
from ipulaunch.launcher.launch.launch import Launch, launch_workload
from ipulaunch.launcher.launch.launch_options import ONE_PROCESS, Asked, Engine
from ipulaunch.launcher.launch.needs import require_images
from ipulaunch.launcher.launch.planning import hosts_needed, named_hosts, plan_workload, system_of
from ipulaunch.launcher.runs.earlier_runs import AUTO, about_resume, with_resume
from ipulaunch.launcher.schedulers import record, time_limit
from ipulaunch.launcher.schedulers.job import ClusterJob, Wishes
from ipulaunch.launcher.schedulers.pinned import again_words, at_site, first_words
from ipulaunch.launcher.schedulers.record import Submitted
from ipulaunch.launcher.schedulers.scheduler import scheduler_of
from ipulaunch.launcher.schedulers.tools import NoAnswer, UnknownJob
from ipulaunch.launcher.schedulers.variables import variables_of
from ipulaunch.topology.machines import hostlist
from ipulaunch.topology.planning.plan import to_json

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
    about = {"openmpi": "rehearsal on CPUs over Open MPI", "direct": ONE_PROCESS}
    return Engine(name or "poprun", False, about.get(str(name), "poprun"))


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
    if asked.host_layout is None:
        asked = asked._replace(host_layout=_layout(site, scheduler))
    asked, hosts, nodelist = _hosts(resolved, asked, engine, site, wishes.nodes)
    if asked.host_layout is None and engine.name == "openmpi" and asked.hosts is None and asked.hostfile is None:
        notes.append("planned for a host like this one; --host-layout or a site says what others have")
    wishes = wishes._replace(nodelist=nodelist)
    _refuse_useless(wishes, scheduler)
    if options["signal_lead"] and wishes.time_s is None and scheduler != "kubernetes":  # where Pods always have it
        raise UsageError(
            f"--signal-lead {options['signal_lead']} has no effect without --time",
            hint=f"give --time: {scheduler} jobs are asked to stop before their limit of time",
        )
    given, resolved = resolved, _resumed(resolved, scheduler)
    notes += about_resume(given, resolved)
    asked = at_site(asked, site, hosts, engine)
    has_setup = _has_setup(wishes, site)
    if scheduler == "pbs" and not has_setup and not wishes.image:
        notes.append(
            "PBS jobs start with a new environment: --setup or a site says how they find ipulaunch and the SDK"
        )
    variables = variables_of(asked.env, scheduler, os.environ, has_setup=has_setup)
    asked = asked._replace(env=variables.env)
    wishes = wishes._replace(sent=variables.sent, secrets=variables.secrets)
    require_images(resolved.workload, resolved.settings.data)  # the job would fail for it, after the queue
    # What is forwarded by its name is for the job to look up.
    values_alone = asked._replace(env=tuple(text for text in asked.env if "=" in text))
    launch = launch_workload(resolved, values_alone, engine, None)
    if wishes.image and hosts > 1 and scheduler != "kubernetes":
        raise UsageError(f"--container-image on {hosts} hosts: MPI would start the others outside the image")
    name, run = path.name, str(path)
    if scheduler == "kubernetes":
        from ipulaunch.launcher.schedulers.kubernetes import job_name, volume

        name = job_name(path.name)
        run = f"{volume(wishes.volumes[0])[1].rstrip('/')}/runs/{name}" if wishes.volumes else f"/tmp/runs/{name}"
        if not wishes.volumes:
            notes.append("without --volume the run and its checkpoints are lost with the Pod")
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
    if asked.host_layout is None and scheduler == "kubernetes" and engine.name != "openmpi":
        notes.append(
            f"the Pod asks for {job.cores_per_host} cores, planned for a host of a POD;"
            " --host-layout, or kubernetes.cpu of a site, says what yours have"
        )
    return Submission(scheduler, job, text, launch, path, (*notes, *launch.notes))


def hand_over(submission: Submission, *, is_made: bool = False) -> Submitted:
    """Make the run directory, or use an empty one, give the job to the scheduler and record what it is called."""
    scheduler = scheduler_of(submission.scheduler)
    run = RunDirectory(submission.path)
    script = submission.path / scheduler.file_name
    try:
        submission.path.parent.mkdir(parents=True, exist_ok=True)
        submission.path.mkdir(mode=0o700, exist_ok=is_made)
    except OSError as error:
        raise UsageError(f"the run directory {submission.path} cannot be made: {error.strerror}") from error
    try:
        write_whole(run.plan, to_json(submission.launch.solution.plan))
        if submission.launch.job is not None:
            write_whole(run.job, to_yaml(submission.launch.job))
        write_whole(script, submission.text)
        names = scheduler.submit(str(script))
    except OSError as error:
        shutil.rmtree(submission.path, ignore_errors=True)
        raise UsageError(f"{submission.path} cannot be written: {error.strerror}") from error
    except NoAnswer as error:
        hint = f"look for it in the queue; its directory {submission.path} is kept"
        raise UnknownJob(f"{error.message}, and may have taken the job", hint=hint) from error
    except UnknownJob as error:
        raise UnknownJob(error.message, hint=f"{error.hint}; its directory {submission.path} is kept") from error
    except IpulaunchError:  # a run that nobody will carry out
        shutil.rmtree(submission.path, ignore_errors=True)
        raise
    workload = submission.job.plan.workload
    job = Submitted(scheduler=submission.scheduler, script=script.name, submitted=utc(), workload=workload, **names)
    try:
        record.write(submission.path, job)
    except OSError as error:
        raise JobError(
            f"{job.scheduler} has the job as {job.id}, which cannot be recorded: {error.strerror}"
        ) from error
    return job


def _layout(site: Site, scheduler: str) -> Optional[str]:
    """The cores of a host, as the site has them: a Pod has as many as it is given."""
    if site.hosts.layout is None and scheduler == "kubernetes" and site.kubernetes.cpu is not None:
        return f"1x{site.kubernetes.cpu}"
    return site.hosts.layout


def _hosts(
    resolved: Resolved, asked: Asked, engine: Engine, site: Site, nodes: Optional[int]
) -> Tuple[Asked, int, Optional[str]]:
    """How many hosts, with names to plan with; those that the user names are asked for."""
    names = named_hosts(asked)
    if names:
        if nodes not in (None, len(names)):
            raise UsageError(f"--nodes {nodes}, and {counted(len(names), 'host')} named", hint="leave --nodes out")
        return asked, len(names), hostlist.render(names)
    asked = _on(asked, nodes or 1)
    plan = plan_workload(resolved, asked, engine, hosts_need_names=False).solution.plan
    if engine.name == "poprun":
        needed, need = hosts_needed(system_of(asked._replace(ipus=plan.ipus), read_catalogue()), plan.ipus)
        if nodes is not None and nodes < needed:
            raise PlanError(f"--nodes {nodes}, and {need}", hint=f"use --nodes {needed} or leave it out")
    if nodes is None:
        nodes = len(plan.hosts)
        if site.hosts.ipus_per_host is not None and engine.name == "poprun":
            nodes = math.ceil(plan.ipus / site.hosts.ipus_per_host)
    return _on(asked, nodes), nodes, None


def _on(asked: Asked, nodes: int) -> Asked:
    return asked._replace(hosts=f"host[0-{nodes - 1}]") if nodes > 1 else asked


def _refuse_useless(wishes: Wishes, scheduler: str) -> None:
    for name, schedulers in _ONLY.items():
        if getattr(wishes, name) and scheduler not in schedulers:
            flag = _FLAGS.get(name, "--" + name.replace("_", "-"))
            raise UsageError(f"{flag} means nothing to {scheduler}", hint=f"it is for {' and '.join(schedulers)}")


def _has_setup(wishes: Wishes, site: Site) -> bool:
    return bool(wishes.setup or site.environment.modules or site.environment.enable or site.environment.lines)


def _resumed(resolved: Resolved, scheduler: str) -> Resolved:
    """The run to continue as a path; what a Pod sees is not here to be looked at."""
    if scheduler != "kubernetes":
        return with_resume(resolved)
    asked, hint = resolved.settings.training.resume, "name the run on the volume: --resume /data/runs/NAME"
    if asked == AUTO:
        raise UsageError("--resume auto looks for runs here, and a Pod has its own", hint=hint)
    if asked is not None and not Path(asked).is_absolute():
        raise UsageError(f"--resume {asked} is relative to the directory here, which a Pod does not see", hint=hint)
    return resolved
